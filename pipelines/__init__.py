"""What runs and when: definitions, jobs, schedules and the command line."""
