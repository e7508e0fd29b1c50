#!/usr/bin/env bash
# vLLM's router before three servers: requests of a session, or that begin alike, go to the same one; a server that refuses or
# is away is passed over. pip install -r requirements.txt
exec vllm-router --host 127.0.0.1 --port 8080 \
    --worker-urls http://127.0.0.1:8081 http://127.0.0.1:8082 http://127.0.0.1:8083 --policy cache_aware --balance-abs-threshold 2 \
    --health-check-interval-secs 1 --health-failure-threshold 1 --health-success-threshold 1 \
    --retry-max-retries 5 --retry-initial-backoff-ms 50 --cb-timeout-duration-secs 2 --cb-failure-threshold 2 \
    --cb-success-threshold 1 --request-timeout-secs 3600 --prometheus-port 9100
