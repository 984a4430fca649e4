"""SECURITY.md, STREAMS.md and RELIABILITY.md promise nothing that a test does not hold: HELD says which hold what, by words
of a sentence. A sentence of PROMISED without such words fails. RELIABILITY.md's numbered promises are test_reliability.py's.
"""

import re

import pytest

from device import ROOT

PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("SECURITY.md", "docs/STREAMS.md", "docs/RELIABILITY.md")}
TEXT = " ".join(" ".join(page.split()) for page in PAGES.values())
PROMISED = [("SECURITY.md", "What is promised"), ("docs/STREAMS.md", "Which frames does a reader get?"),
            ("docs/STREAMS.md", "What is promised"), ("docs/STREAMS.md", "On a GPU"),
            ("docs/RELIABILITY.md", "How the daemon is fair")]

ACCESS, SECRECY, MEMORY = (f"integration/test_{name}.py" for name in ("rule5_access", "secrecy", "users_memory"))
SEGMENTS, LIMITS, CHARGES = (f"integration/test_{name}.py" for name in ("rule3_segments", "rule6_7_limits", "charges"))
EXCESS, HTTP, EVENTS = (f"integration/test_{name}.py" for name in ("excess", "http", "events"))
PEER, TRUST, STRANGERS = (f"integration/test_peer{name}.py" for name in ("", "_trust", "_strangers"))
LIVE, PROVIDE = "integration/test_live.py", "integration/test_provide.py"
HOSTILE, FOREIGN, EXHAUSTION = (f"fault/test_{name}.py" for name in ("hostile", "foreign", "exhaustion"))

RING, STREAM, STREAMS, GPU_STREAM = "unit/test_ring.c", "lib/test_stream.c", "python/test_streams.py", "lib/test_gpu_stream.c"
TAKES_PART, MODEL = "integration/test_stream.py", "fault/test_stream_model.py"
SESSION, BOUNDS = "unit/test_session.c", "unit/test_bounds.c"

# Words that a sentence has, and {file below tests/: its tests}; or words of the sentence that the same tests hold.
HELD = {
    # before it
    "an object's owner, group and mode decide": {
        ACCESS: "test_modes test_supplementary_groups_count test_the_owner_and_root_may_do_all"},
    "and those of every object of the same owner, group, mode and share": {
        SEGMENTS: "test_modes_do_not_share test_users_and_groups_do_not_share"},
    "never changing another": {ACCESS: "test_modes", LIVE: "test_rights test_what_cannot_be_done_with_it"},
    "everybody who may connect (`--mode`": {"integration/test_startup.py": "test_mode_of_the_socket"},
    "clients that reach the gateway's HTTP port": {
        HTTP: "test_private_objects_are_counted_only test_the_token "
              "test_what_the_gateway_may_not_see test_other_sites_are_refused"},
    "subscribers of `--events`": {EVENTS: "test_others_do_not_get_in test_over_tcp_private_objects_have_no_name"},
    "never from what the peer says": {ACCESS: "test_objects_belong_to_who_made_them test_groups_are_those_of_the_connection"},
    # under "What is promised"
    "**A private object looks like an absent one.**": {
        ACCESS: "test_what_may_not_be_seen_is_not_told_apart_from_nothing test_waiting_for_what_may_not_be_seen "
                "test_a_wait_for_it_ends_like_one_for_nothing test_events_of_what_may_not_be_seen "
                "test_leases_of_objects_that_may_not_be_seen",
        "integration/test_why.py": "test_what_one_may_not_open_is_only_counted",
        "integration/test_versions.py": "test_an_older_version_has_its_own_rights",
        "integration/test_survive.py": "test_only_who_could_see_it_is_told"},
    "every method answers word for word as if": "**A private object looks like an absent one.**",
    "`leases` and `alias` do not reveal it": "**A private object looks like an absent one.**",
    "Numbers of leases, watches and segments are useless": {HOSTILE: "test_the_wrong_end_of_everything"},
    "**Nobody changes a `final` object**": {
        MEMORY: "test_final_is_not_even_the_producers_to_change test_final_has_memory_of_its_own",
        "integration/test_survive.py": "test_final_stays_final"},
    "The kernel protects its memory, which no other object shares": "**Nobody changes a `final` object**",
    "**Readers cannot change what they read.**": {
        ACCESS: "test_a_readers_descriptor_cannot_be_upgraded test_not_even_the_owner_can_shrink_or_grow_a_segment",
        SECRECY: "test_a_readers_descriptor_registered_gives_no_more test_a_legacy_handle_that_is_guessed",
        "integration/test_keep.py": "test_nobody_writes_the_page test_another_user_cannot_open_the_page_anew"},
    "a reader's descriptor is read-only, cannot be opened anew": "**Readers cannot change what they read.**",
    "The daemon refuses registered memory": {
        MEMORY: "test_registered_memory_is_the_owners_alone_to_write test_huge_pages_stay_under_their_readers "
                "test_the_library_sees_to_it"},
    "the MMU makes the mapping read-only": {"gpu/check_memory.py": "copies_refused writing_kernel"},
    "**A mistake changes nothing sealed.**": {
        "lib/test_sealed.c": "test_what_is_sealed_faults test_what_is_opened_faults test_final",
        "lib/test_resume.c": "test_a_claim_that_is_lost", "python/test_arrays.py": "test_what_is_sealed_cannot_be_changed"},
    "a write to a sealed or opened object, or by a lost claim, is a fault": "**A mistake changes nothing sealed.**",
    "This covers ranges of 64 KiB or more": "**A mistake changes nothing sealed.**",
    "**Memory that goes from one user, group or mode to another is zero.**": {
        SECRECY: "test_freed_memory_shows_nothing test_memory_of_what_was_never_sealed test_domains_of_one_user_are_apart "
                 "test_random_users",
        SEGMENTS: "test_memory_that_changes_domain_is_zero", "gpu/check_memory.py": "scrubbed"},
    "A segment that is given up goes back to the kernel": "**Memory that goes from one user, group or mode to another is zero.**",
    "**Offsets of others lead nowhere.**": {
        "python/test_foreign_content.py": "test_no_content_leads_astray test_right_content_reads_as_ones_own "
                                          "test_offsets_and_codes_are_refused_with_a_sentence "
                                          "test_what_was_exported_stays_as_it_was_checked test_whose_content_it_is",
        "python/test_gpu_columns.py": "test_a_copy_of_another_users_column_is_checked", "lib/test_arrow.c": "test_foreign"},
    "check them before use, and in a copy": "**Offsets of others lead nowhere.**",
    "So do pyarrow, pandas, polars": "**Offsets of others lead nowhere.**",
    "An offset that leads out of the object": "**Offsets of others lead nowhere.**",
    "An object copied from a GPU to the host is checked": "**Offsets of others lead nowhere.**",
    "**An alias gives no new access.**": {ACCESS: "test_an_alias_opens_no_door"},
    "its mode is no wider": "**An alias gives no new access.**",
    "**A name never becomes a path.**": {
        SECRECY: "test_names_touch_no_files test_spilled_content_is_the_daemons_alone"},
    "It is a key of a table": "**A name never becomes a path.**",
    "Files of the disk tier have numbers for names": "**A name never becomes a path.**",
    "*Tables, queues, buffers.*": {
        HOSTILE: "test_watches_of_another_user_delay_no_events test_a_tier_flood",
        LIMITS: "test_watches test_waits test_unsealed test_leases test_objects_of_a_user test_segments_of_a_user "
                "test_a_refused_session_is_told_why test_a_user_at_the_limit_is_not_in_anothers_way",
        "integration/test_docs.py": "test_the_limits test_each_limit_of_the_protocol",
        CHARGES: "test_text_has_a_limit test_leases_have_a_limit_of_the_user"},
    "Each has a limit for each session and each user": "*Tables, queues, buffers.*",
    "leases are good, 16 KiB a session": {"integration/test_keep.py": "test_a_page_has_a_limited_number"},
    "`held_bytes`, the daemon's own memory": {
        HOSTILE: "test_bytes_of_half_lines_are_limited test_bytes_of_requests_that_wait_are_limited "
                 "test_answers_that_nobody_reads_are_limited_for_all_of_a_user"},
    "*Memory.*": {
        CHARGES: "test_a_quota_bounds_what_is_held test_aliases_count_for_their_owner "
                 "test_what_is_read_after_its_name_has_gone_counts_for_its_readers test_who_unmaps_goes_on_for_ever",
        EXCESS: "test_a_reader_past_its_quota_does_not_keep_a_device test_parked_leases_past_a_quota_end "
                "test_a_part_in_a_deleted_stream_ends test_no_more_end_than_have_to test_leases_of_others_are_no_shield"},
    "Quotas count everything that a user holds": "*Memory.*",
    "a user past its quota loses": "*Memory.*",
    "a reader keeps it on its device as long as it has it open": {
        EXCESS: "test_what_has_a_name_counts_for_its_owner_alone"},
    "Replacing objects locks none of their readers out": {
        EXCESS: "test_a_replacement_locks_no_reader_out test_what_is_merely_kept_is_recalled_before_a_refusal "
                "test_weights_larger_than_a_quota_are_swapped",
        "lib/test_keep.c": "test_what_is_stale_is_given_back_before_a_create"},
    "a provider is asked for another user's at once": {PROVIDE: "test_users_take_turns"},
    "users take turns, with 64 names each": "a provider is asked for another user's at once",
    "A user causes one line a minute of each kind": {
        LIMITS: "test_nobody_fills_the_log test_a_refused_session_is_told_why", STRANGERS: "test_what_others_can_write_into_the_log",
        "unit/test_log.c": "test_one_a_minute_with_a_count test_by_user_and_kind"},
    "losses are always written": {"integration/test_spill_files.py": "test_a_pack_that_is_not_what_was_written"},
    "is asked for it and ended after `unmap_ms`": {
        LIMITS: "test_a_reader_that_never_reads", CHARGES: "test_who_does_not_answer_is_ended_for_who_waits",
        EXCESS: "test_a_reader_past_its_quota_does_not_keep_a_device test_no_more_end_than_have_to",
        HOSTILE: "test_others_are_served"},
    "is disconnected past `output_bytes`": "is asked for it and ended after `unmap_ms`",
    "*Descriptors.*": {
        EXHAUSTION: "test_what_is_sent_and_not_received test_what_is_queued test_several_users test_registered_memory "
                    "test_killed_beside_registered_memory",
        "unit/test_quota.c": "test_stocks", "integration/test_stream.py": "test_others_open_no_more_than_there_is"},
    "stays below the limit of the operating system": "*Descriptors.*",
    "Each user that takes its maximum leaves half": "*Descriptors.*",
    "*Descriptors that block*": {
        FOREIGN: "test_closed_elsewhere test_stuck_closes_are_their_senders",
        "unit/test_closer.c": "test_a_user_has_one_at_a_time test_more_users_than_processes"},
    "Then other descriptors that are not memory wait": "*Descriptors that block*",
    "**Nothing secret is logged**": {SECRECY: "test_secrets_are_not_logged", HTTP: "test_the_access_log"},
    "**The daemon has no network.**": {
        SECRECY: "test_the_daemon_has_no_network",
        "packaging/test_confine.py": "test_the_unit_is_understood test_it_withholds"},
    "It reads its own protocol, from local peers": "**The daemon has no network.**",
    "- `gpubufd-gateway`, on libmicrohttpd and NNG": {
        HTTP: "test_private_objects_are_counted_only test_what_is_refused_at_the_start test_what_the_gateway_may_not_see"},
    "Its user owns nothing and sees what its group may open": "- `gpubufd-gateway`, on libmicrohttpd and NNG",
    "- `gpubufd-peer`, on OpenSSL and libcurl": {
        PEER: "test_what_is_not_for_other_machines test_a_stranger_without_a_certificate "
              "test_a_stranger_asks_what_makes_no_sense",
        "integration/test_peer_certificates.py": "test_a_wrong_certificate test_the_certificate_of_another_machine",
        "integration/test_peer_cluster.py": "test_a_machine_that_is_not_in_etcd_gets_nothing",
        "integration/test_peer_ucx.py": "test_no_option_without_the_word"},
    "serves machines with a certificate of the cluster": "- `gpubufd-peer`, on OpenSSL and libcurl",
    "A machine with a copy decides nothing": {
        TRUST: "test_who_says_that_it_has_a_copy test_false_content_is_not_sealed test_a_higher_revision_of_another_machines "
               "test_the_origin_has_died_without_a_word "
               "test_the_origins_word_outlives_it_in_etcd"},
    "places of their own, 32 for an address": {
        STRANGERS: "test_connections_without_a_certificate_keep_nobody_out "
                   "test_half_a_handshake_from_many_addresses_ends_no_other"},
    "256 leases on each of its fifteen connections": {
        PEER: "test_what_a_stranger_may_have_at_a_time", STRANGERS: "test_leases_that_are_asked_for_at_once",
        "unit/test_peer_session.c": "test_leases_that_are_not_used_end"},
    "Stopping `gpubufd-peer` ends all leases of other machines": {
        "integration/test_rule1_disconnect.py": "test_kill_9 test_other_ends"},
    "**Parsers are fuzzed.**": {
        f"fuzz/fuzz_{name}.c": "LLVMFuzzerTestOneInput"
        for name in ("frame", "json", "layout", "request", "reply", "journal", "restore", "spill", "manifest", "etcd", "query")},
    "run that code under sanitizers": "**Parsers are fuzzed.**",
    "before a handler sees it": {"integration/test_params.py": "test_unknown test_wrong_type test_out_of_range test_twice"},
    # under "What is not"
    "libgpubuf keeps a program from breaking it": {"lib/test_sealed.c": "test_what_is_sealed_faults test_what_is_opened_faults"},
    "a claim that waits keeps them from beginning to": {LIVE: "test_a_waiting_claim_has_its_turn"},
    "A reader that lies costs others no more than a blocking one": {
        "unit/test_ring.c": "test_reader_lies test_crowd_costs_one_wake test_reader_behind_a_crowd "
                            "test_writer_lies test_writer_rings_in_vain",
        "integration/test_stream.py": "test_each_page_has_one_writer test_others_cannot_open_a_page_for_writing "
                                      "test_a_crowd_costs_the_daemon_one_wake"},
    "says `denied` or `exists` if the name is taken": {ACCESS: "test_a_taken_name_of_another"},
    "is not asked for a name that is taken": {PROVIDE: "test_a_name_that_one_may_not_open"},
    "Give a prefix (`gpubufd --provider": {PROVIDE: "test_who_may_provide"},
    "Any user can see which prefixes are provided": {PROVIDE: "test_sessions_says_what_is_provided"},
    "checks its `uid`, which the daemon takes from the kernel": {
        ACCESS: "test_objects_belong_to_who_made_them",
        "python/test_load_file.py": "test_a_name_that_a_stranger_has_taken",
        "interop/test_vllm_processed.py": "test_what_another_user_published_under_a_name_of_facts_is_not_mapped",
        "interop/test_torch_checkpoint.py": "test_another_user_is_not_in_the_way",
        "interop/test_torch_multiprocessing.py": "test_what_another_user_puts_in_its_place_is_not_received"},
    "have no control characters and none that turn the direction of text or show nothing": {
        "integration/test_names.py": "test_impossible test_characters_that_show_nothing", PROVIDE: "test_what_a_provider_says_is_cleaned",
        "integration/test_versions.py": "test_a_label_that_is_not_what_it_looks_like",
        "integration/test_hello.py": "test_client_names_deceive_nobody"},
    "must escape them, as `gpubufctl` does": {
        "integration/test_gpubufctl.py": "test_no_text_of_others_moves_the_cursor test_nor_does_the_name_of_what_answers"},
    "files that are mode 0600": {SECRECY: "test_spilled_content_is_the_daemons_alone"},
    # under "The daemon itself"
    "as it is by Python's `connect(path, start=True)`": {
        "python/test_start.py": "test_a_daemon_of_another_user_is_not_ones_own "
                                "test_a_program_that_others_could_have_laid_is_not_taken"},
    "It needs no privilege": {EXHAUSTION: "test_registered_memory", MEMORY: "test_registered_memory_is_the_owners_alone_to_write"},
    # of STREAMS.md, under "Which frames does a reader get?"
    "The newest frame at each read": {STREAM: "test_newest_and_each", STREAMS: "test_newest"},
    "`frame.missed` counts": "The newest frame at each read",
    "Every frame in order, while it is at most 8 behind": {STREAM: "test_newest_and_each", STREAMS: "test_each test_asyncio"},
    "Further behind it misses the oldest": {STREAMS: "test_a_stopped_reader"},
    "and the writer waits for it, up to": {STREAMS: "test_each"},
    "is not waited for again until it moves": {STREAMS: "test_a_stopped_reader"},
    "The number of frames that it may hold at once": {STREAM: "test_newest_and_each", STREAMS: "test_newest"},
    "The default is one": "The number of frames that it may hold at once",
    "a slot is always free": {RING: "test_reader_lies test_kills", MODEL: "test_every_order", STREAM: "test_many_readers"},
    "for which they do not suffice is refused": {
        STREAM: "test_what_is_refused", TAKES_PART: "test_slots_are_not_promised_twice test_what_is_refused"},
    "A stream has at most 128 slots": "for which they do not suffice is refused",
    "A stream has one writer at a time": {STREAM: "test_one_writer_after_another"},
    "When the writer exits, readers get its last frames": {STREAMS: "test_each test_asyncio"},
    "Another writer may take the stream over": {
        STREAM: "test_one_writer_after_another", TAKES_PART: "test_the_dead_do_not_take_part"},
    "Frames of the former writer": "Another writer may take the stream over",
    # under "What is promised"
    "No frame is torn": {RING: "test_kills", TAKES_PART: "test_kills", MODEL: "test_every_order test_no_step_is_needless"},
    "notifies the writer at every half of its lag": {MODEL: "test_who_sleeps_is_woken", STREAMS: "test_each"},
    "The writer waits for it at most once": {STREAMS: "test_a_stopped_reader"},
    "keeps at most the frames it may hold": "The writer waits for it at most once",
    "A reader stays a member until it closes the stream": {
        TAKES_PART: "test_a_successor_has_the_same_pages test_the_dead_do_not_take_part",
        EXCESS: "test_a_part_in_a_deleted_stream_ends"},
    "In a deleted stream it stays only": "A reader stays a member until it closes the stream",
    "interrupts no stream": {STREAM: "test_held_over_a_restart"},
    "continue meanwhile, and with the next daemon": {
        STREAM: "test_held_over_a_restart", "fault/test_claims.py": "test_a_part_in_a_stream_outlives_the_daemon",
        "integration/test_failpoints.py": "test_joining_at_failpoints"},
    "Members that exit meanwhile are removed once it runs": "continue meanwhile, and with the next daemon",
    "Nobody can join before": "continue meanwhile, and with the next daemon",
    "Its memory is not reused": {STREAM: "test_another_daemon"},
    "A faulty or malicious reader harms only itself": "A reader that lies costs others no more than a blocking one",
    "which costs the writer about 10 µs a frame": "A reader that lies costs others no more than a blocking one",
    "others may learn up to 100 ms late": "A reader that lies costs others no more than a blocking one",
    "A malicious writer can show wrong frames": {RING: "test_writer_lies test_writer_rings_in_vain"},
    "announces but never publishes": "A malicious writer can show wrong frames",
    "`mode` says who may read": {LIVE: "test_rights"},
    "A child of `fork` is not a member": {STREAM: "test_child_of_fork"},
    "a stream ends with the daemon": {STREAM: "test_another_daemon test_waiting_for_the_dead"},
    "Members get `Stale` after they reconnect": "a stream ends with the daemon",
    "no frame was torn, and readers with `waits` missed none": "No frame is torn",
    # under "On a GPU"
    "take them like arrays": {STREAMS: "test_gpu"},
    "returns a frame when the work queued on that CUDA stream has finished": {GPU_STREAM: "test_slots_behind_work"},
    "A reader gets a frame when it is complete": {GPU_STREAM: "test_complete"},
    "a reader gets each frame at once": {GPU_STREAM: "test_ahead", STREAMS: "test_gpu"},
    "CUDA stream waits when it takes": "a reader gets each frame at once",
    "then raises `Canceled`": {GPU_STREAM: "test_killed_writer_of_one_ahead"},
    "work runs on undefined content": "then raises `Canceled`",
    "the reader's CUDA stream hangs too": {MODEL: "test_work_on_a_gpu", GPU_STREAM: "test_ahead"},
    "it hangs until the next daemon runs": "the reader's CUDA stream hangs too",
    "A reader's frames are read-only": {"gpu/check_memory.py": "copies_refused writing_kernel"},
    # of RELIABILITY.md, under "How the daemon is fair"
    "Every ready session is served for at most 50 µs": {
        SESSION: "test_one_request_a_slice test_the_living_go_before_those_who_drain"},
    "Users take turns, and so do the sessions of each": {SESSION: "test_users_take_turns test_ended_waits_take_turns"},
    "Users also take turns when waiting": "Users take turns, and so do the sessions of each",
    "No request holds the loop for longer than": {
        BOUNDS: "test_bounds", "unit/test_bounds_wide.c": "test_wide",
        "unit/test_bounds_room.c": "test_eviction test_many_wait_for_room"},
    "leases and mappings are returned in slices": {
        SESSION: "test_the_dead_go_first test_gone_with_much_to_do test_gone_while_waiting_for_many_names"},
    "If the session has unsealed objects": "After a peer hangs up",
    "After a peer hangs up": {
        SESSION: "test_gone_while_behind test_gone_with_much_to_do", HOSTILE: "test_hung_up_with_much_to_do"},
    "An event is written once": {HOSTILE: "test_watches_of_another_user_delay_no_events", BOUNDS: "test_bounds"},
    "With a user's 1024 watches a request that deletes": {BOUNDS: "test_bounds"},
    "watches are 1024 events behind is not served": {SESSION: "test_watchers_behind_are_not_served"},
    "If unsent events fill `output_bytes`": {HOSTILE: "test_watches_of_another_user_delay_no_events"},
}

# Words of sentences that promise nothing: they explain, advise, or say what is not.
NO_PROMISE = """
Each line is held by tests | can be probed | Within a user there is no boundary | No document promises the latter
memory is reused as it is | say where a reader reads | elements, and GPU memory in place | **Nobody can use up what others need
So let only users read it | Eight users with file systems | The log has names of objects | Two processes with users of their own
Whoever has the authority's key | has the algorithm | Name the CUDA stream | This has two risks:
Processes take turns on a GPU | **Turns.** | **Endings.** | **Events.** | **Not bounded** | measures the result
With several hostile users | By default there is no quota | For time, the log and providers
promises what machines and strangers cannot do
""".replace("\n", "|").split("|")
NO_PROMISE = [words.strip() for words in NO_PROMISE if words.strip()]


def sentences(page, section):
    """Of paragraphs, items, and rows of tables; no code."""
    text = re.sub(r"```.*?```", "", PAGES[page].split(f"\n## {section}\n")[1].split("\n## ")[0], flags=re.S)
    for part in re.split(r"\n\n|\n(?=- |\| )", text):
        part = " ".join(part.split())
        if part.strip("|- "):
            yield from re.split(r"(?:(?<=[.!?])|(?<=[.!?]\*)|(?<=[.!?]\*\*)|(?<=[.!?]\)))\s+(?=[*A-Z(`\[])", part)


def is_there(text, test):
    """As a test of pytest or cmocka, a check on a GPU, or a fuzz target."""
    return re.search(rf"^(async )?def {test}\b|^[A-Z_]+\({test}[,)]|^(static void|int) {test}\(", text, re.M)


@pytest.mark.parametrize("words", HELD)
def test_a_promise_is_held(words):
    assert words in TEXT, "the pages say it no more, or in other words: say here which"
    tests_of = HELD[words]
    for file, tests in HELD[tests_of].items() if isinstance(tests_of, str) else tests_of.items():
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        for test in tests.split():
            assert is_there(text, test), f"there is no test {test} in tests/{file}"


@pytest.mark.parametrize("page,section", PROMISED)
def test_each_sentence_is_held(page, section):
    found = list(sentences(page, section))
    assert len(found) >= 10
    assert [sentence for sentence in found if not any(words in sentence for words in (*HELD, *NO_PROMISE))] == []


def test_what_promises_nothing_is_there():
    assert [words for words in NO_PROMISE if words not in TEXT] == []
