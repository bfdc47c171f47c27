"""One folder per database; each fulfils ``base.Backend``."""
