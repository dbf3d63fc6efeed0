"""`whet data`: data sets from local or hub files into whet's and verl's columns, and filters by difficulty."""
