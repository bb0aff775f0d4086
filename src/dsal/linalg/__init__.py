"""Dense linear algebra in place: LAPACK, tile by tile on one pool of threads, or torch on other devices."""
