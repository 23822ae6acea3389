"""How writes are guarded: a reading before each, a ledger, one writer at a time, at the service's pace."""
