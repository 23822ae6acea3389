"""How writes are guarded: a look before each, a ledger, one writer at a time, at the service's pace."""
