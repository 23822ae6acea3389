"""The ledger of an instance: what runs did, and which outcomes are pending."""
