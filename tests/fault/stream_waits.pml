/*
 * Who sleeps on a stream is woken, for Spin: client/lib/base/ring.c. A reader sleeps on the bell
 * until a frame is there (gb_ring_publish, gb_ring_wait): the kernel lets it sleep on a word of its
 * own, then compares the bell. With -DMOVED a writer sleeps until a reader has moved (tell_moved,
 * gb_ring_wait_late). Stores stay in their processor's buffer, in
 * order, until it empties itself or at a fence; later loads pass them.
 *
 * Safe: when nothing else can happen, nobody sleeps through what came. test_stream_model.py leaves
 * out one step at a time, and Spin then finds an error.
 */
#define NEWS 2 /* frames that come, or moves */

byte data, word;  /* the head and the bell; `from` and `moved` */
bool asleep;      /* as it says of itself */
bool sleeping;    /* as the kernel has it */
byte seen;        /* by who sleeps */
bool ended;

mtype = { DATA, WORD }
chan waker_stores = [4] of { mtype, byte };
chan sleeper_stores = [2] of { bool };

inline drain_waker()
{
    do
    :: atomic { waker_stores ? DATA, data }
    :: atomic { waker_stores ? WORD, word }
    :: empty(waker_stores) -> break
    od
}

active proctype buffers()
{
    end: do
    :: atomic { waker_stores ? DATA, data }
    :: atomic { waker_stores ? WORD, word }
    :: atomic { sleeper_stores ? asleep }
    od
}

active proctype waker()
{
    byte news;

    do
    :: news == NEWS -> break
    :: news < NEWS ->
        news++;
        waker_stores ! DATA, news;
        waker_stores ! WORD, news;
#ifndef NO_WAKER_FENCE
        drain_waker();
#endif
        if
        :: asleep -> sleeping = false /* the call of the kernel */
        :: else
        fi
    od
}

active proctype sleeper()
{
    byte was;

    do
    :: seen == NEWS -> break
    :: seen < NEWS ->
#if defined(MOVED) || defined(HEAD_BEFORE_BELL)
        if
        :: data > seen -> seen = data; goto again
        :: else
        fi;
        was = word;
#else
        was = word;
        if
        :: data > seen -> seen = data; goto again
        :: else
        fi;
#endif
        sleeper_stores ! true;
#ifndef NO_SLEEPER_FENCE
        empty(sleeper_stores);
#endif
        if
#ifdef MOVED
        :: data > seen -> goto awake
#else
        :: word != was -> goto awake
#endif
        :: else
        fi;
#ifdef MOVED
        /* The kernel compares, and lets it sleep, as one. */
        atomic {
            if
            :: word == was -> sleeping = true
            :: else
            fi
        }
#elif defined(COMPARED_FIRST)
        if
        :: word == was -> sleeping = true
        :: else
        fi;
#else
        sleeping = true;
        if
        :: word == was
        :: else -> sleeping = false
        fi;
#endif
        !sleeping;
        awake: sleeper_stores ! false;
        again: skip
    od;
    ended = true
}

init
{
    timeout;
    assert(ended)
}
