"""Who is alive: registrations under leases, node ids, and everybody's view of them."""
