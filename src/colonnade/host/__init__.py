"""Many servers under one roof, as people configure them."""
