"""Where assets are listed and written: the inventory service."""
