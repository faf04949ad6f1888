"""Ray, for `just bench cluster`: tasks that store their results in PostgreSQL, each in a transaction of its own.

Its argument is a JSON object: units, workers, server (arguments of psycopg.connect), password_file. Prints the seconds.
"""

import json
import sys
import time

import psycopg
import ray

# Tasks in flight, as many as the offers of our coordinator.
WINDOW = 2_000

connection = None


def connect(server):
    return psycopg.connect(**server, autocommit=True)


@ray.remote(num_cpus=1)
def unit(server, number):
    global connection
    if connection is None:
        connection = connect(server)
        connection.execute("SET synchronous_commit = on")
    item = f"unit-{number:08}"
    value = json.dumps({"unit": item})
    connection.execute("INSERT INTO bench_ray (item, output) VALUES (%s, %s) ON CONFLICT DO NOTHING", (item, value))


def main():
    options = json.loads(sys.argv[1])
    with open(options["password_file"]) as file:
        server = {**options["server"], "password": file.read().strip()}
    with connect(server) as own:
        own.execute("DROP TABLE IF EXISTS bench_ray")
        own.execute("CREATE TABLE bench_ray (item TEXT PRIMARY KEY, output TEXT NOT NULL)")
        ray.init(num_cpus=options["workers"], include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        # Its processes are started before the time is taken.
        ray.get([unit.remote(server, -1 - number) for number in range(options["workers"])])
        own.execute("TRUNCATE bench_ray")
        begun, waiting = time.perf_counter(), []
        for number in range(options["units"]):
            waiting.append(unit.remote(server, number))
            if len(waiting) >= WINDOW:
                done, waiting = ray.wait(waiting, num_returns=WINDOW // 2)
                ray.get(done)
        ray.get(waiting)
        seconds = time.perf_counter() - begun
        stored = own.execute("SELECT COUNT(*) FROM bench_ray").fetchone()[0]
        own.execute("DROP TABLE bench_ray")
    ray.shutdown()
    if stored != options["units"]:
        sys.exit(f"only {stored} of {options['units']} results are stored")
    print(json.dumps({"seconds": seconds, "version": ray.__version__}))


main()
