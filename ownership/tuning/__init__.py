"""How often the rules are wrong, and which settings would do better: reports, by which nothing is decided."""
