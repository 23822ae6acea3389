"""Settings of Celery's workers; `dagster_celery.app` reads them where this folder is in PYTHONPATH."""

import os

broker_url = os.environ["ASSET_OWNERS_CELERY_BROKER"]
result_backend = os.environ["ASSET_OWNERS_CELERY_BACKEND"]
# A step leaves the queue when it is done: that of a worker which dies goes to another one, immediately if the
# machine lives on, else after so many seconds. A step that takes longer is begun twice.
task_acks_late = True
task_reject_on_worker_lost = True
worker_prefetch_multiplier = 1
broker_transport_options = {"visibility_timeout": 3600}
# What a step tells its run lists the hosts and the owners that it shows.
result_expires = 3600
