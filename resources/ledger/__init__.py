"""What runs did, and what is still to be found out of it: the books of an instance."""
