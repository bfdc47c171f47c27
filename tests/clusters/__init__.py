"""Tests on clusters of database servers. All of them are deep: a cluster needs seconds to start."""
