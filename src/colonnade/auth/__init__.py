"""Who is calling, and what travels through strangers' hands."""
