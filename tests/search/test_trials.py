"""The file of a search: claims, crashes, damage, and what a stranger may have written."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import sqlite3
import threading
import time

import pytest

from hoplite.errors import SearchError
from hoplite.search.trials import FILE, FinishedTrial, Scores, SearchFile, Trial

FACTS = {"dataset": "d", "data": "0123", "version": "0"}
TRIALS = [Trial("sgc", {"lr": lr}, seed) for lr in (1.0, 2.0) for seed in (0, 5)]


def finished(trial: Trial, accuracy: float | None = 0.5, test: float | None = None):
    scores = Scores(accuracy, accuracy, 0.1, 3, 7, diverged=False)
    return FinishedTrial(trial, scores, test, 0.25)


def hold(folder, ready) -> None:
    SearchFile(folder, FACTS).queue(TRIALS).claim()
    ready.touch()
    time.sleep(6000)


def test_a_trial_is_claimed_once_and_released(tmp_path):
    with SearchFile(tmp_path, FACTS) as file, SearchFile(tmp_path, FACTS) as other:
        queue, theirs = file.queue(TRIALS), other.queue(TRIALS[::-1])
        claims = [queue.claim(), theirs.claim(), queue.claim(), theirs.claim()]
        assert [trial for _, trial in claims] == [TRIALS[i] for i in (0, 3, 1, 2)]
        assert queue.claim() is theirs.claim() is None
        queue.release(claims[0][0])
        assert theirs.claim() == claims[0]
        assert queue.done() == theirs.done() == 0
        queue.record(claims[0][0], finished(TRIALS[0]))
        assert (queue.done(), queue.done(1), theirs.done(1)) == (1, 1, 0)
        assert queue.finished() == [finished(TRIALS[0]), None, None, None]


def test_the_claim_of_a_killed_process_counts_for_nothing(tmp_path):
    ready = tmp_path / "ready"
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path, ready))
    process.start()
    while not ready.exists():
        assert process.is_alive()
        time.sleep(0.01)
    with SearchFile(tmp_path, FACTS) as file:
        queue = file.queue(TRIALS)
        assert queue.claim()[1] == TRIALS[1]
        os.kill(process.pid, 9)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie
        assert queue.claim()[1] == TRIALS[0]
        process.join()
        with file.transaction() as db:  # a process that began after the claim has its id
            db.execute("UPDATE trials SET claimed = claimed - 1e6 WHERE id = 2")
        assert queue.claim()[1] == TRIALS[1]


def test_what_is_recorded_first_stays_and_test_scores_are_added(tmp_path):
    with SearchFile(tmp_path, FACTS) as file:
        plain, test = file.queue(TRIALS[:1]), file.queue(TRIALS[:1], test=True)
        number, trial = plain.claim()
        plain.record(number, finished(trial, 0.5))
        plain.record(number, finished(trial, 0.75))
        assert plain.finished() == [finished(trial, 0.5)]
        assert plain.claim() is None
        assert (plain.done(), test.done()) == (1, 0)
        assert test.claim() == (number, trial)
        assert plain.done() == 1  # though it is trained again
        test.release(number)
        test.record(number, finished(trial, 0.5, test=None))  # diverged: tested, without a result
        assert test.finished() == [finished(trial, 0.5)]
        assert plain.finished()[0].test_accuracy is None


def test_threads_share_a_file_in_memory():
    trials = [Trial("sgc", {"lr": i}, 0) for i in range(200)]
    with SearchFile(None, FACTS) as file:
        queue, names = file.queue(trials), []

        def work() -> None:
            while claimed := queue.claim():
                names.append(claimed[1].options["lr"])
                queue.record(claimed[0], finished(claimed[1]))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(names) == list(range(200))
        assert queue.done() == 200


def test_other_data_and_other_files_are_refused(tmp_path):
    SearchFile(tmp_path / "s", FACTS).close()
    with pytest.raises(SearchError, match="another data: '0123' instead of '4567'"):
        SearchFile(tmp_path / "s", FACTS | {"data": "4567"})
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / FILE).write_text("no database" * 100)
    with pytest.raises(SearchError, match="is damaged"):
        SearchFile(tmp_path / "text", FACTS)
    with sqlite3.connect(tmp_path / "s" / FILE) as db:
        db.execute("CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM facts; END")
    db.close()
    with pytest.raises(SearchError, match="was not written by a search of this version"):
        SearchFile(tmp_path / "s", FACTS)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / FILE)
    with pytest.raises(SearchError, match="is not a file"):
        SearchFile(tmp_path / "pipe", FACTS)
    (tmp_path / "taken").write_text("x")
    with pytest.raises(SearchError, match="cannot be used as a folder"):
        SearchFile(tmp_path / "taken", FACTS)


@pytest.mark.parametrize(
    "change",
    [
        "scores = replace(scores, '0.5', '0.6')",
        "scores = replace(scores, '_epoch\": 3', '_epoch\": -3')",
        "scores = 'x'",
        "scores = x'ff'",
        "scores = (SELECT scores FROM trials WHERE id = 2)",
        "options = '{\"lr\": 9.0}'",
        "test = replace(test, '0.25', '0.75')",
    ],
)
def test_edited_rows_are_not_believed(tmp_path, change):
    with SearchFile(tmp_path, FACTS) as file:
        queue = file.queue(TRIALS[:2], test=True)
        while claimed := queue.claim():
            queue.record(claimed[0], finished(claimed[1], test=0.25))
        with file.transaction() as db:
            db.execute(f"UPDATE trials SET {change} WHERE id = 1")
        with pytest.raises(SearchError, match="is damaged"):
            queue.finished()


def test_flipped_bytes_give_the_right_scores_or_one_sentence(tmp_path):
    with SearchFile(tmp_path, FACTS) as file:
        queue = file.queue(TRIALS)
        while claimed := queue.claim():
            queue.record(claimed[0], finished(claimed[1]))
        expected = queue.finished()
    whole, errors = (tmp_path / FILE).read_bytes(), 0
    for seed in range(150):
        rng, content = random.Random(seed), bytearray(whole)
        for _ in range(rng.choice([1, 1, 8, 200])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            content = content[: rng.randrange(len(content))]
        (tmp_path / FILE).write_bytes(content)
        with contextlib.suppress(SearchError):
            errors += 1
            with SearchFile(tmp_path, FACTS) as file:
                results = file.queue(TRIALS).finished()
            assert all(one in (None, right) for one, right in zip(results, expected, strict=True))
            errors -= 1
    assert errors > 20
