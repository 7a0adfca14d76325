"""Model stores with faults, real servers for tests, builders; never deployed."""
