"""Many keyed streams in Spark: a filter for each device, whose state Spark keeps.

A network of sensors sends complex samples at irregular times through Spark Structured Streaming.
Each sensor has a Kalman filter of its own, permanently: when a machine is lost, or the job is
restarted, every filter continues from its state, and every sample counts once. Spark keeps the
state, as bytes, in RocksDB on its workers and in checkpoints.

A state for each sensor would be a million small rows, read and written one by one by Python. So
sensors are put in buckets, and a bucket is a `cgp.Bank`: one state as one value, one call of
`update` for all samples that came.

    class Filters(StatefulProcessor):
        def init(self, handle):
            self.state = handle.getValueState("bank", "bytes binary")

        def handleInputRows(self, bucket, rows, timers):
            ...
            bank = Bank.from_bytes(self.state.get()[0], kf)
            step = bank.update(keys, z)
            self.state.update((bank.to_bytes(),))

How many buckets? Enough to keep all cores busy, and enough that each is small compared with the
memory of a worker: 64 bytes of state to a sensor are 6 MB for a bucket of 100,000. The number must
not change during the life of the job.

The example is the job and its proof. It is run as a process of its own, killed in the middle of a
micro-batch, started again from the checkpoint, and left to finish. Expect every sample in the
output once, and every number equal, to the last bit, to that of one Bank in one process that saw
all samples in order. A job that keeps its filters only in memory, as a dictionary in a
`foreachBatch`, would restart all of them: this is the baseline, whose error is shown.

Run it with: python examples/spark_stream.py (two minutes; needs Java and pip install "cgp[spark]")
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import cgp
from cgp import statespace

SENSORS, BUCKETS, FILES, ROWS = 2000, 4, 8, 20_000
KILLED_AFTER = 3  # micro-batches that are committed before the job is killed
COLUMNS = ["sensor", "number", "re", "im"]


def tracker():
    """The filter of all sensors: a carrier whose amplitude drifts."""
    model = statespace.LinearGaussian([[0.99 * np.exp(0.2j)]], [[0.02]], [[1.0]], [[0.5]])
    return cgp.KalmanFilter(model)


def samples(files, rows, sensors):
    """Of sensors at random: the sensor, the signal and the sample, in order, `[files * rows]`."""
    rng = np.random.default_rng(0)
    sensor = rng.integers(0, sensors, files * rows)
    turn, seen = np.empty(len(sensor), int), np.zeros(sensors, int)
    for i, key in enumerate(sensor):
        turn[i], seen[key] = seen[key], seen[key] + 1
    signal = np.exp(0.2j * turn + 1j * rng.uniform(0, 2 * np.pi, sensors)[sensor])
    return sensor, signal, signal + 0.5 * (rng.normal(size=(len(sensor), 2)) @ [1, 1j])


# --- the job --------------------------------------------------------------------------------------


def processor():
    """The class that Spark runs for each bucket, on its workers."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Filters(StatefulProcessor):
        """A Bank for each bucket of sensors."""

        def init(self, handle):
            """Finds the state of the bucket."""
            self.filter, self.state = tracker(), handle.getValueState("bank", "bytes binary")

        def handleInputRows(self, key, rows, timerValues):
            """Takes the samples of a micro-batch in."""
            if self.state.exists():
                bank = cgp.Bank.from_bytes(bytes(self.state.get()[0]), self.filter)
            else:
                bank = cgp.Bank(self.filter)
            given = pd.concat(rows).sort_values("number")
            z = given.re.to_numpy() + 1j * given.im.to_numpy()
            step = bank.update(given.sensor.to_numpy(), z)
            self.state.update((bank.to_bytes(),))
            mean = step.filtered.mean[:, 0]
            yield pd.DataFrame(
                {"number": given.number, "re": mean.real, "im": mean.imag}, columns=COLUMNS[1:]
            )

        def close(self):
            """Nothing is open."""

    return Filters()


def job(folder):
    """The streaming job: from files to files, with checkpoints."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col

    state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.streaming.stateStore.providerClass", state)
        .config("spark.sql.shuffle.partitions", str(BUCKETS))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    given = (
        spark.readStream.schema("sensor long, number long, re double, im double")
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/in")
    )
    found = (
        given.withColumn("bucket", col("sensor") % BUCKETS)
        .groupBy("bucket")
        .transformWithStateInPandas(
            processor(), "number long, re double, im double", "Append", "None"
        )
    )
    query = (
        found.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/out")
    )
    query.awaitTermination()
    spark.stop()


# --- its proof ------------------------------------------------------------------------------------


def started(folder):
    """The job as a process, and a group of processes of its own."""
    return subprocess.Popen(
        [sys.executable, __file__, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def committed(folder):
    """How many micro-batches are complete."""
    return len([p for p in Path(folder, "checkpoint", "commits").glob("*") if p.name.isdigit()])


def killed_and_started_again(folder, after):
    """Runs the job, kills it after some micro-batches, and runs it to its end."""
    first = started(folder)
    while committed(folder) < after:
        if first.poll() is not None:
            raise RuntimeError("the job has ended before it was to be killed")
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    done = committed(folder)
    if started(folder).wait():
        raise RuntimeError("the job has failed")
    return done


def main(files=FILES, rows=ROWS, sensors=SENSORS):
    """Prints the figures, and returns them."""
    import pandas as pd

    sensor, truth, z = samples(files, rows, sensors)
    number = np.arange(len(z))
    table = pd.DataFrame(dict(zip(COLUMNS, [sensor, number, z.real, z.imag], strict=True)))
    started_at = int(time.time()) - files
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in").mkdir()
        for i in range(files):
            path = Path(folder, "in", f"{i:03d}.parquet")
            table[i * rows : (i + 1) * rows].to_parquet(path)
            os.utime(path, (started_at + i,) * 2)  # Spark takes files in the order of their times
        done = killed_and_started_again(folder, min(KILLED_AFTER, files - 2))
        found = pd.read_parquet(Path(folder, "out")).sort_values("number")

    expected = cgp.Bank(tracker()).update(sensor, z).filtered.mean[:, 0]
    once = np.array_equal(found.number, number)
    filtered = found.re.to_numpy() + 1j * found.im.to_numpy()
    difference = np.max(np.abs(filtered - expected)) if once else np.nan
    after = slice(done * rows, None)
    afresh = cgp.Bank(tracker()).update(sensor[after], z[after]).filtered.mean[:, 0]
    errors = {
        "state from the checkpoint": np.abs(expected[after] - truth[after]),
        "filters that begin again": np.abs(afresh - truth[after]),
    }

    print(f"{files * rows} samples of {sensors} sensors in {files} micro-batches")
    print(f"killed after {done} of them were committed, and started again")
    print(f"every sample once: {once}")
    print(f"largest difference from one process that saw all in order: {difference}")
    print("error of the first samples after the restart:")
    for name, error in errors.items():
        print(f"    {name:28s}{np.sqrt(np.mean(error[:rows] ** 2)):.3f}")
    return {"once": once, "difference": difference, "killed after": done}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        job(sys.argv[1])
    else:
        main()
