"""Drives the real `embrasure-flow` against real PostgreSQL and reads the lake with programs we did not write."""
