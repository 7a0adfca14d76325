"""etcd, as the services use it: a thin asyncio client, its requests as values, its errors in two kinds, its watches."""
