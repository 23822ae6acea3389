"""A real search engine and a small inventory service, for trying and testing."""
