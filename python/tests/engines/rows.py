# SPDX-License-Identifier: Apache-2.0
"""What the connector must do, row by row, with a real engine in one process. Prints one JSON object:
{row: "" or the traceback of its failure}.

Usage: rows.py GROUP MODEL STORE
"""

import contextlib
import json
import sys
import threading
import time
import traceback

from engine import BLOCK, CHUNK, Engine, prompt

import kvcodec
from kvcodec.errors import NotFound, Unavailable

E = None  # the engine


class Faulty:
    """The loader's or the scheduler's Backing, with `before(name)` called before each get or lookup."""

    def __init__(self, backing, before):
        self.backing, self.before, self.calls = backing, before, 0

    def use(self, call):
        self.calls += 1
        self.before(self.calls)
        return self.backing.use(call)


@contextlib.contextmanager
def faulty(part, before):
    healthy = part._backing
    part._backing = Faulty(healthy, before)
    try:
        yield part._backing
    finally:
        part._backing = healthy


def published(seed, tokens=300):
    """A prompt that is in the store and nowhere else, and its greedy tokens as computed."""
    p = prompt(tokens, seed)
    [(answer, cached)] = E.generate(p)
    assert cached == 0
    E.settle()
    E.forget()
    return p, answer


def fetched(p):
    """(answer, tokens not computed, what the counters grew by)."""
    before = E.metrics()
    [(answer, cached)] = E.generate(p)
    E.settle()
    E.generate(prompt(8, 99), tokens=1)  # a step more, so that all counters are in
    after = E.metrics()
    return answer, cached, {k: after[k] - before.get(k, 0) for k in after if after[k] != before.get(k, 0)}


def names(p, salt=""):
    [ns] = E.connector._scheduler._identity.result().namespaces(salt, "")
    return [kvcodec.object_name(ns, key, "exact") for key in kvcodec.chunk_keys(ns, p, CHUNK)]


def damage(name):
    store = kvcodec.open_store(E.uri)
    data = bytearray(store.get(name))
    data[len(data) // 2] ^= 1
    store.put(name, data)


def external_hits_give_the_same_tokens():
    p, answer = published(1)
    again, cached, grew = fetched(p)
    assert (again, cached) == (answer, 256), cached
    assert grew["loads"] == 1 and grew["load_tokens"] == 256 and "saves" not in grew, grew


def a_prompt_that_is_stored_to_its_last_token():
    p, answer = published(2, 256)
    again, cached, _ = fetched(p)
    assert again == answer and cached >= 255, cached


def local_and_external_hits_mix():
    p, answer = published(3)
    [(_, cached)] = E.generate(p[:100] + prompt(20, 77))
    assert cached == 64  # and now three blocks are local, one and a half chunks
    E.settle()
    layout = E.worker()._loader._layout
    held = [t.clone() for t in layout.tensors]
    before = E.metrics()
    [(again, cached)] = E.generate(p)
    assert again == answer and cached == 256, cached
    after = E.metrics()
    assert after["load_tokens"] - before["load_tokens"] == 256 - 96, (before, after)
    # The three local blocks were shared with the load, and not written to.
    changed = {b for old, new in zip(held, layout.tensors) for b in range(layout.blocks) if not old[b].equal(new[b])}
    assert len(changed) <= (300 + 12 - 96) // BLOCK + 1, changed
    E.settle()
    E.forget()


def eight_requests_at_once_in_chunked_prefill():
    prompts = [prompt(200 + 20 * i, 10 + i) for i in range(8)]
    computed = E.generate(prompts)
    E.settle()
    E.forget()
    again = E.generate(prompts)
    assert [a for a, _ in again] == [a for a, _ in computed]
    assert [c for _, c in again] == [len(p) // CHUNK * CHUNK for p in prompts], again
    E.forget()


def a_damaged_first_chunk_is_computed_and_written_anew():
    p, answer = published(20)
    damage(names(p)[0])
    again, cached, grew = fetched(p)
    assert (again, cached) == (answer, 0) or grew["load_corrupt"] == 1, (cached, grew)
    assert again == answer and grew["load_corrupt"] == 1 and grew["loads"] == 1, grew
    assert grew["saves"] >= 1, grew
    for name in names(p):
        kvcodec.verify_chunk(kvcodec.open_store(E.uri).get(name))
    E.forget()
    again, cached, grew = fetched(p)
    assert (again, cached) == (answer, 256) and "load_corrupt" not in grew, (cached, grew)


def a_damaged_later_chunk_keeps_those_before():
    p, answer = published(21)
    damage(names(p)[2])
    again, cached, grew = fetched(p)
    assert again == answer and grew["load_corrupt"] == 1 and grew["load_tokens"] == 128, (cached, grew)
    E.forget()
    again, cached, _ = fetched(p)
    assert (again, cached) == (answer, 256)


def a_foreign_object_under_the_right_name_is_refused():
    p, answer = published(22)
    other, _ = published(23)
    store = kvcodec.open_store(E.uri)
    store.put(names(p)[1], store.get(names(other)[1]))
    again, _, grew = fetched(p)
    assert again == answer and grew["load_corrupt"] == 1 and grew["load_tokens"] == 64, grew


def a_chunk_that_is_gone_since_the_lookup():
    p, answer = published(24)

    def before(call):
        if call == 2:
            raise NotFound("evicted meanwhile")

    with faulty(E.worker()._loader, before):
        again, _, grew = fetched(p)
    assert again == answer and grew["load_missing"] == 1 and grew["load_tokens"] <= 256 - 64, grew


def what_the_store_has_evicted_is_saved_again():
    p, answer = published(36)
    kvcodec.open_store(E.uri).remove(names(p)[1])
    again, cached, grew = fetched(p)
    assert (again, cached) == (answer, 64) and grew["saves"] == 1 and grew["save_present"] == 2, grew
    E.forget()
    assert fetched(p)[:2] == (answer, 256)


def a_store_that_dies_in_a_load():
    p, answer = published(25)

    def before(call):
        if call >= 2:
            raise Unavailable("connection lost")

    with faulty(E.worker()._loader, before):
        again, _, grew = fetched(p)
    assert again == answer and grew["load_errors"] == 1, grew


def a_fault_nobody_thought_of():
    p, answer = published(26)

    def before(call):
        raise ZeroDivisionError("in a thread")

    with faulty(E.worker()._loader, before):
        again, _, grew = fetched(p)
    assert again == answer and grew["load_errors"] == 1, grew


def step_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    outputs = []
    while not condition(outputs):
        assert time.monotonic() < deadline, "the engine did not get there"
        outputs.extend(E.llm.llm_engine.step())
    return outputs


def add(name, p, tokens=4):
    from vllm import SamplingParams

    E.llm.llm_engine.add_request(name, {"prompt_token_ids": p},
                                 SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False))  # fmt: skip


def free_blocks():
    return E.llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


def a_request_aborted_while_it_loads():
    p, answer = published(27)
    free, go = free_blocks(), threading.Event()
    scheduler = E.llm.llm_engine.engine_core.engine_core.scheduler
    before = E.metrics()
    with faulty(E.worker()._loader, lambda call: go.wait(60)):
        add("abort me", p)
        step_until(lambda _: any(str(r.status).endswith("WAITING_FOR_REMOTE_KVS") for r in scheduler.requests.values()))
        E.llm.llm_engine.abort_request(["abort me"], internal=False)
        for _ in range(3):
            E.llm.llm_engine.step()
        assert free_blocks() < free, "blocks were given away while a load writes to them"
        go.set()
        add("other", prompt(40, 28))
        step_until(lambda out: any(o.finished for o in out))
        step_until(lambda _: free_blocks() == free)
    assert E.metrics()["load_cancelled"] == before.get("load_cancelled", 0) + 1
    E.forget()
    again, cached, _ = fetched(p)
    assert (again, cached) == (answer, 256)


def the_scheduler_does_not_wait_for_a_lookup():
    p, answer = published(29)
    go = threading.Event()
    with faulty(E.connector._scheduler, lambda call: go.wait(60)):
        add("slow", p, 12)
        add("quick", prompt(40, 30))
        done = step_until(lambda out: any(o.finished for o in out))
        assert [o.request_id.split("-")[0] for o in done if o.finished] == ["quick"]
        go.set()
        [slow] = [o for o in step_until(lambda out: any(o.finished for o in out)) if o.finished]
    assert list(slow.outputs[0].token_ids) == answer and slow.num_cached_tokens == 256
    E.forget()


def a_lookup_that_takes_too_long_is_given_up():
    p, answer = published(31)
    go, settings = threading.Event(), E.connector._scheduler._settings
    normal = settings.lookup_timeout_s
    object.__setattr__(settings, "lookup_timeout_s", 0.05)
    try:
        with faulty(E.connector._scheduler, lambda call: go.wait(60)):
            before = E.metrics()
            [(again, cached)] = E.generate(p)
            go.set()
    finally:
        object.__setattr__(settings, "lookup_timeout_s", normal)
    E.generate(prompt(8, 98), tokens=1)
    assert again == answer and cached == 0 and E.metrics()["lookup_timeouts"] == before.get("lookup_timeouts", 0) + 1
    E.forget()


def a_store_that_is_down_at_a_lookup():
    p, answer = published(32)

    def before(call):
        raise Unavailable("connection refused")

    with faulty(E.connector._scheduler, before):
        again, cached, grew = fetched(p)
    assert (again, cached) == (answer, 0) and grew["lookup_errors"] >= 1, grew
    E.forget()
    assert fetched(p)[:2] == (answer, 256)


def tenants_see_nothing_of_each_other():
    p = prompt(200, 33)
    results = {}
    for round_ in range(2):
        for salt in ("alice", "bob", None):
            [(answer, cached)] = E.generate(p, salt=salt)
            E.settle()
            E.forget()
            results[salt, round_] = answer, cached
    assert {cached for (_, r), (_, cached) in results.items() if r == 0} == {0}, results
    assert {cached for (_, r), (_, cached) in results.items() if r == 1} == {192}, results
    assert len({tuple(answer) for answer, _ in results.values()}) == 1


def values_that_are_not_finite_are_not_saved():
    saver, p = E.worker()._saver, prompt(200, 34)
    gather = saver._layout.gather

    def poisoned(blocks, into):
        gather(blocks, into)
        kvcodec.arrays.views(into)[1][1, 5, 0, 3] = float("nan")

    count, before = len(E.objects()), E.metrics()
    saver._layout.gather = poisoned
    try:
        [(answer, _)] = E.generate(p)
        E.settle()
    finally:
        del saver._layout.gather
    E.generate(prompt(8, 97), tokens=1)
    assert len(E.objects()) == count and E.metrics()["save_refused"] == before.get("save_refused", 0) + 3
    E.forget()
    again, cached, grew = fetched(p)  # what was not saved is tried again
    assert (again, cached) == (answer, 0) and grew["saves"] == 3, (cached, grew)


def a_step_that_failed_is_not_saved():
    worker, p = E.worker(), prompt(200, 35)
    runner = E.llm.llm_engine.model_executor.driver_worker.worker.model_runner
    forward, count = runner._model_forward, len(E.objects())

    def failing(*args, **kwargs):
        raise ArithmeticError("a kernel")

    staged = []
    stage, worker._saver.stage = worker._saver.stage, lambda job, failed: staged.append(failed)
    runner._model_forward = failing
    try:
        scheduler = E.llm.llm_engine.engine_core.engine_core.scheduler
        add("fails", p[:64])
        deadline = time.monotonic() + 30
        with contextlib.suppress(ArithmeticError):
            while time.monotonic() < deadline:
                output = scheduler.schedule()
                E.llm.llm_engine.model_executor.execute_model(output)
        assert staged == [True], staged
    finally:
        worker._saver.stage, runner._model_forward = stage, forward
    assert len(E.objects()) == count


def another_process_finds_what_was_published():
    prompts = json.loads(kvcodec.open_store(E.uri).get("prompts"))
    for p, answer in prompts:
        [(again, cached)] = E.generate(p)
        assert again == answer and cached == len(p) // CHUNK * CHUNK, cached
    E.forget()


def publish_for_another_process():
    prompts = []
    for seed in (50, 51):
        p, answer = published(seed, 300 + 50 * (seed - 50))
        prompts.append((p, answer))
    kvcodec.open_store(E.uri).put("prompts", json.dumps(prompts).encode())


def preempted_requests_end_right():
    """So few blocks that requests are preempted; answers are those of requests that run alone."""
    prompts = [prompt(200, 60 + i) for i in range(4)]
    alone = [E.generate(p, tokens=100)[0][0] for p in prompts]
    E.settle()
    E.forget()
    scheduler = E.llm.llm_engine.engine_core.engine_core.scheduler
    preempt, seen = scheduler._preempt_request, []
    scheduler._preempt_request = lambda request, *a, **k: (seen.append(request.request_id), preempt(request, *a, **k))[1]
    together = [answer for answer, _ in E.generate(prompts, tokens=100)]
    assert seen, "nothing was preempted"
    assert together == alone
    for name in E.objects():
        if name != "prompts":
            kvcodec.verify_chunk(kvcodec.open_store(E.uri).get(name))


def requests_are_computed_while_the_store_is_down():
    p = prompt(200, 70)
    [(answer, cached)] = E.generate(p)
    assert cached == 0 and len(answer) == 12
    metrics = E.metrics()
    assert metrics["lookups"] >= 1 and metrics["saves"] == 0, metrics


def a_tier_below_exact():
    p, answer = published(80)
    again, cached, grew = fetched(p)
    assert cached == 256 and grew["loads"] == 1
    assert sum(a == b for a, b in zip(again, answer)) >= 6, (again, answer)
    assert all(name.endswith("/int8") for name in E.objects())


SMALL = {"max_num_batched_tokens": 128}
GROUPS = {
    "main": (dict(vllm=SMALL), [
        external_hits_give_the_same_tokens, a_prompt_that_is_stored_to_its_last_token, local_and_external_hits_mix,
        eight_requests_at_once_in_chunked_prefill, a_damaged_first_chunk_is_computed_and_written_anew,
        a_damaged_later_chunk_keeps_those_before, a_foreign_object_under_the_right_name_is_refused,
        a_chunk_that_is_gone_since_the_lookup, what_the_store_has_evicted_is_saved_again, a_store_that_dies_in_a_load, a_fault_nobody_thought_of,
        a_request_aborted_while_it_loads, the_scheduler_does_not_wait_for_a_lookup,
        a_lookup_that_takes_too_long_is_given_up, a_store_that_is_down_at_a_lookup, tenants_see_nothing_of_each_other,
        values_that_are_not_finite_are_not_saved, publish_for_another_process, a_step_that_failed_is_not_saved]),
    "second": (dict(vllm={"num_gpu_blocks_override": 26, "max_model_len": 512}), [
        another_process_finds_what_was_published, preempted_requests_end_right]),
    "down": ({}, [requests_are_computed_while_the_store_is_down]),
    "int8": (dict(tier="int8"), [a_tier_below_exact]),
}  # fmt: skip


def main():
    global E
    group, model, store = sys.argv[1:4]
    options, rows = GROUPS[group]
    E = Engine(model, store, **options)
    results = {}
    for row in rows:
        try:
            began = time.monotonic()
            row()
            print(f"{time.monotonic() - began:6.2f} s {row.__name__}", file=sys.stderr)
            results[row.__name__] = ""
        except BaseException:
            results[row.__name__] = traceback.format_exc()
            print(results[row.__name__], file=sys.stderr, flush=True)
    print("RESULTS", json.dumps(results), flush=True)
    E.close()


if __name__ == "__main__":
    main()
