#!/usr/bin/env bash
# PostgreSQL for the ledger and MLflow for the records, on the head of a cluster. Called at each start of Ray; it starts
# what does not run yet. Both listen on this machine alone: trials need neither, only the driver does, which is here.
# Folders: POSTGRES_DATA on a disk of this machine (not NFS), and RUNS, which every machine mounts.
set -euo pipefail
: "${POSTGRES_DATA:=$HOME/postgres}" "${RUNS:=/srv/runs}"
umask 077
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)

if [ ! -f "$POSTGRES_DATA/PG_VERSION" ]; then
  "$bin/initdb" --pgdata "$POSTGRES_DATA" --encoding UTF8 --locale C --auth-local peer --auth-host reject >/dev/null
fi
if ! "$bin/pg_ctl" --pgdata "$POSTGRES_DATA" status >/dev/null; then
  "$bin/pg_ctl" --pgdata "$POSTGRES_DATA" --wait --log "$POSTGRES_DATA/server.log" \
    --options "-c listen_addresses='' -c unix_socket_directories=$POSTGRES_DATA" start >/dev/null
fi
for database in ledger mlflow; do
  psql --host "$POSTGRES_DATA" --dbname postgres --tuples-only --command "SELECT 1 FROM pg_database WHERE datname = '$database'" | grep --quiet 1 \
    || createdb --host "$POSTGRES_DATA" "$database"
done

if ! (exec 3<>/dev/tcp/127.0.0.1/5000) 2>/dev/null; then
  mkdir -p "$RUNS/mlartifacts"
  nohup python -m mlflow server --host 127.0.0.1 --port 5000 \
    --backend-store-uri "postgresql+psycopg://$USER@/mlflow?host=$POSTGRES_DATA" \
    --artifacts-destination "$RUNS/mlartifacts" >"$RUNS/mlflow.log" 2>&1 &
fi
echo "ledger:   postgresql://$USER@/ledger?host=$POSTGRES_DATA"
echo "tracking: http://127.0.0.1:5000"
