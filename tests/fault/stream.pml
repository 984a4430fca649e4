/*
 * Frames of a stream, for Spin: client/lib/base/ring.c with its claims, looks and fences, step by
 * step. Two writers, one after the other, and two readers: of the newest frame, and of each. Any
 * of them may die between two steps; the daemon then says so. A store may stay in its processor's
 * buffer until the processor's next store or fence, as on x86; later loads pass it.
 *
 * Safe: a claimed frame's content is whole for as long as it is claimed; and the reader of each
 * misses none. test_stream_model.py leaves out one step at a time, and Spin then finds an error.
 */
#ifndef FRAMES
#define FRAMES 3
#endif
#ifndef READERS
#define READERS 3 /* 1: of the newest, 2: of each, 3: both */
#endif
#define SLOTS (2 + READERS % 2 + READERS / 2) /* one is written, one is the newest, readers hold one each */
#ifndef READS
#define READS 2
#endif
#define NONE 15
#define NEWEST 0
#define EACH 1

/* The roster. */
byte joined; /* the last writer that has joined: 1, 2 */
byte over;
bool takes_part[2];

/* The fronts of the two writers; frames of the first are 1 to FRAMES, of the second later ones. */
byte head_frame[3], head_slot[3];
byte slot_of[16]; /* by the frame's number */
byte frame_in[3 * SLOTS]; /* by the writer and the slot */

/* The readers' claims: what others see; a store on its way is in `buffered`. */
byte held[2] = NONE;
byte buffered[2] = NONE;
bool pending[2];
byte from[2];

/* The writer's store of 0 on its way. */
bool out_pending;
byte out_at;

byte content[SLOTS]; /* 0: half of it is written */

#define AT(w, s) ((w) * SLOTS + (s))

inline flush_reader(r)
{
    if
    :: pending[r] -> held[r] = buffered[r]; pending[r] = false
    :: else
    fi
}

inline flush_writer()
{
    if
    :: out_pending -> frame_in[out_at] = 0; out_pending = false
    :: else
    fi
}

/* The processors' buffers empty themselves at any time. */
active proctype buffers()
{
    end: do
    :: atomic { pending[NEWEST] -> flush_reader(NEWEST) }
    :: atomic { pending[EACH] -> flush_reader(EACH) }
    :: atomic { out_pending -> flush_writer() }
    od
}

proctype reader(byte r)
{
    byte w, frame, slot, last, reads;

    do
    :: reads == READS -> break
    :: reads < READS ->
        /* gb_ring_follow */
        if
        :: joined != w ->
            w = joined;
            d_step {
                last = (w - 1) * FRAMES;
                if
                :: r == EACH -> from[r] = last + 1
                :: else
                fi
            }
        :: else
        fi;
        if
        :: w == 0 || head_frame[w] <= last ->
            /* nothing new: waits, or gives up */
            if
            :: (joined != w || (w && head_frame[w] > last))
            :: break
            fi
        :: else ->
            if
            :: r == NEWEST -> atomic { frame = head_frame[w]; slot = head_slot[w] }
            :: else -> frame = last + 1; slot = slot_of[frame]
            fi;
            /* claim_slot */
            atomic { flush_reader(r); buffered[r] = slot; pending[r] = true }
            if
            :: goto dead
            :: true
            fi;
#ifndef NO_READER_FENCE
            atomic { flush_reader(r) }
#endif
            if
#ifdef NO_LOOK
            :: true ->
#else
            :: frame_in[AT(w, slot)] == frame ->
#endif
                if
#ifndef NO_WRITER_CHECK
                :: joined != w ->
                    atomic { flush_reader(r); held[r] = NONE }
#endif
#ifdef NO_WRITER_CHECK
                :: true ->
#else
                :: joined == w ->
#endif
                    assert(content[slot] == frame);
                    last = frame;
                    reads++;
                    if
                    :: goto dead
                    :: true
                    fi;
                    if
                    :: r == EACH -> atomic { flush_reader(r); from[r] = frame + 1 }
                    :: else
                    fi;
                    assert(content[slot] == frame);
                    atomic { flush_reader(r); held[r] = NONE }
                fi
            :: else ->
#ifndef NO_WRITER_CHECK
                /* Of each frame none is missed, unless another writer has come. */
                assert(r == NEWEST || joined != w);
#endif
                atomic { flush_reader(r); held[r] = NONE }
            fi
        fi
    od;
    dead: /* in order or by a kill: the daemon clears it */
    atomic { flush_reader(r); takes_part[r] = false }
}


proctype writer(byte w)
{
    byte last = (w - 1) * FRAMES, newest = NONE, victim, s, r, kept, oldest;
    byte frames[SLOTS];
    bool busy[SLOTS];

    joined = w;
    do
    :: last == w * FRAMES -> break
    :: last < w * FRAMES ->
        if
        :: break /* it dies here, or later */
        :: true
        fi;
#ifndef NO_WAIT
        /* gb_ring_wait_late, for a reader for which one frame is kept */
        (!takes_part[EACH] || from[EACH] > last || last == (w - 1) * FRAMES);
#endif
        again: skip;
        /* oldest_free */
        d_step {
            victim = NONE; s = 0;
            do
            :: s == SLOTS -> break
            :: s < SLOTS ->
                if
                :: s != newest && !busy[s] && (victim == NONE || frames[s] < frames[victim]) ->
                    victim = s
                :: else
                fi;
                s++
            od;
            s = 0
        }
        assert(victim != NONE);
        atomic { flush_writer(); out_at = AT(w, victim); out_pending = true }
#ifndef NO_WRITER_FENCE
        atomic { flush_writer() }
#endif
        /* scan_claims: one load after the other */
        d_step { s = 0; do :: s == SLOTS -> break :: s < SLOTS -> busy[s] = false; s++ od; s = 0; kept = NONE }
        r = 0;
        do
        :: r == 2 -> break
        :: r < 2 ->
            if
            :: takes_part[r] ->
                atomic {
                    if
                    :: held[r] != NONE -> busy[held[r]] = true
                    :: else
                    fi
                }
                atomic {
                    if
                    :: r == EACH && from[r] && from[r] >= last -> kept = from[r]
                    :: r == EACH && from[r] && from[r] < last -> kept = last
                    :: else
                    fi
                }
            :: else
            fi;
            r++
        od;
        if
        :: busy[victim] || frames[victim] >= kept ->
            atomic { flush_writer(); frame_in[AT(w, victim)] = frames[victim] }
            goto again
        :: else
        fi;
        atomic { flush_writer(); content[victim] = 0 }
        if
        :: goto dead
        :: true
        fi;
        content[victim] = last + 1;
        if
        :: goto dead
        :: true
        fi;
        /* gb_ring_publish */
        frame_in[AT(w, victim)] = last + 1;
        if
        :: goto dead
        :: true
        fi;
        slot_of[last + 1] = victim;
        atomic { head_frame[w] = last + 1; head_slot[w] = victim }
        frames[victim] = last + 1;
        newest = victim;
        last++
    od;
    dead:
    atomic { flush_writer(); over = w }
#ifdef FORGOTTEN
    /* A successor of the daemon that knows of nobody. */
    atomic { takes_part[NEWEST] = false; takes_part[EACH] = false }
#endif
    if
    :: w == 1 -> run writer(2)
    :: else
    fi
}

init
{
    atomic {
        takes_part[NEWEST] = READERS % 2;
        takes_part[EACH] = READERS / 2;
        from[EACH] = 1;
        run writer(1);
        if
        :: READERS % 2 -> run reader(NEWEST)
        :: else
        fi;
        if
        :: READERS / 2 -> run reader(EACH)
        :: else
        fi
    }
}
