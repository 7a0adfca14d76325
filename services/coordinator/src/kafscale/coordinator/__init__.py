"""Producer ids and coordinators."""
