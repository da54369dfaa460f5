"""What a tenant may try, as data: requests, and the wall that each of them meets."""
