/*
 * Frames on a GPU, for Spin: a writer whose frames are announced before they are complete, the
 * words `ready` and `done`, and the mark beside a frame's number (client/lib/base/ring.c; complete()
 * and end_frame() in client/lib/objects/stream.c; end_waits() in daemon/objects/stream.c). Numbers
 * wrap, as their low bits do in `ready`. The writer may die between two steps, its work with it; the
 * daemon then says so. The reader reads ahead of the writer's work, on its own GPU. How the two
 * agree on a slot, and stores that are on their way, are in stream.pml.
 *
 * Safe: work that was told in the end to have had a complete frame found it whole; a frame that is
 * said never to be complete is not; and the reader is told one or the other. test_stream_model.py
 * changes one step at a time, and Spin then finds an error.
 */
#define SLOTS 3 /* one is written, one is the newest, the reader holds one */
#define FIRST 5 /* the first frame: later ones pass 7 */
#define LAST 8
#define LOW(n) ((n) & 7)
#define LESS(a, b) (((a) - (b)) & 4)
#define OUT 16
#ifdef MARK_IN_PLACE
#define MARKED(n) 0
#else
#define MARKED(n) ((n) | OUT)
#endif

byte head, head_slot;
byte frame_in[SLOTS], ready[SLOTS], done[SLOTS], content[SLOTS];
bool held[SLOTS], complete[16];
bool killed, over, told; /* the writer's process; what the daemon says; all of it */

chan work = [1] of { byte, byte }; /* the writer's, on its GPU: slot, frame */

active proctype writers_gpu()
{
    byte slot, frame;

    end: do
    :: atomic { !killed && work ? [slot, frame] -> work ? slot, frame; content[slot] = 0 }
        atomic { !killed -> content[slot] = frame }
        atomic { !killed -> ready[slot] = LOW(frame); complete[frame] = true }
    od
}

#define MAY_DIE if :: goto dead :: true fi

active proctype writer()
{
    byte last = FIRST - 1, victim, s, newest = SLOTS;
    byte frames[SLOTS];

    do
    :: last == LAST -> goto dead
    :: last < LAST ->
        /* gb_ring_acquire_slot: a slot whose frame is complete is marked, and left if it is claimed */
        if
        :: victim = 0 :: victim = 1 :: victim = 2
        fi;
        if
        :: victim != newest && (frames[victim] == 0 || ready[victim] == LOW(frames[victim]))
        :: else -> goto again
        fi;
        frame_in[victim] = MARKED(frames[victim]);
        MAY_DIE;
        if
        :: held[victim] && !(frames[victim] && done[victim] == frames[victim]) ->
            frame_in[victim] = frames[victim]
        :: else ->
            last++;
            frames[victim] = last;
            ready[victim] = LOW(last - 1);
            MAY_DIE;
            work ! victim, last;
            MAY_DIE;
            frame_in[victim] = last;
            MAY_DIE;
            atomic { head = last; head_slot = victim; newest = victim }
        fi;
        again: skip
    od;
    dead: killed = true; /* none of its work runs any more */
    over = true;
#ifndef NO_END_WAITS
    s = 0;
    do
    :: s < SLOTS ->
        atomic {
            if
            :: LESS(ready[s], LOW(frame_in[s])) -> ready[s] = LOW(frame_in[s] + 1)
            :: else
            fi
        }
        s++
    :: else -> break
    od;
#endif
    told = true
}

active proctype reader()
{
    byte frame, slot, reads;
    bool whole;

    do
    :: head > frame ->
        atomic {
            if
            :: frame_in[head_slot] == head -> frame = head; slot = head_slot; held[slot] = true
            :: else -> goto again
            fi
        }
        /* its work, which waits for the frame, and reads it */
        do
        :: !LESS(ready[slot], LOW(frame)) -> break
        :: told && LESS(ready[slot], LOW(frame)) -> assert(false) /* it would wait for ever */
        od;
        whole = content[slot] == frame;
        whole = whole && content[slot] == frame;
        done[slot] = frame;
        /* gb_ring_ready, by the processor: some time later */
        if
        :: ready[slot] == LOW(frame) -> assert(whole)
        :: else ->
            if
#ifdef OUT_IS_OVER
            :: frame_in[slot] == frame || (over && frame_in[slot] == (frame | OUT)) ->
#else
            :: frame_in[slot] == frame ->
#endif
                assert(!complete[frame])
            :: else -> assert(whole)
            fi
        fi;
        held[slot] = false
        again: skip
    :: told -> break
    od
}
