/*
 * A broadcast member X, its two followers, and two workers: X becomes one and ceases to be one
 * while it uploads. The set of a follower and the copy of the broadcast set that its reads take
 * are what guard.pml shows of one: here a score of X, and of a copy the guard. README.md has the
 * variants.
 *
 * A step is a statement, a script, or a transaction. Between steps anything may happen.
 */

#ifndef EVENTS
#define EVENTS 3     /* what the site and operators do, and deaths of workers */
#endif
#ifndef LOSSES
#define LOSSES 1     /* of a copy, as by eviction */
#endif
#ifndef OTHERS
#define OTHERS 1     /* there are other broadcast members: a copy without X is not empty */
#endif
#ifndef START
#define START Absent /* or Broadcast */
#endif
#define CHANGES (EVENTS + 1)
#define FOLLOWERS 2  /* each has a page of its own, and a copy */
#define bit(n) (1 << (n))
#define has(s, n) (((s) & bit(n)) != 0)

mtype = { Absent, Joining, Broadcast, Leaving };
mtype = { Idle, Upload, Change, Refill };

/* MySQL. */
byte last = 1;
mtype state;
byte change;                 /* the number of the last change of state */

/* Redis. */
byte score[FOLLOWERS];       /* of X in the set of a follower */
bool there[FOLLOWERS];       /* whether there is a copy */
byte copied[FOLLOWERS];      /* the score of X in it; 0: it is no member */
byte guard[FOLLOWERS];

/* The queue: tasks that wait. A part of a fan-out begins with a page, as one of a change does. */
byte parts, refills;
byte changes[CHANGES + 1];   /* by its number: pages */

byte events = EVENTS, losses = LOSSES;
bool none[FOLLOWERS];        /* a read has been told by MySQL that there are no broadcast members */
byte finished;               /* the last upload all of whose tasks are done */

typedef Worker { mtype kind; byte at, page, number, read, token, seen; mtype told; bool had };
Worker w[2];
byte i, upload_is_missed;

/* What a read shows of X: by the set and the copy; without a copy it walks. */
#ifdef V_FORGET_THE_SECOND_BOUND
#define show(f) score[f]
#else
#define show(f) (there[f] -> (copied[f] > score[f] -> copied[f] : score[f]) : last)
#endif

#define isQuiet() (parts == 0 && w[0].kind != Upload && w[1].kind != Upload)
/* An upload whose tasks are done is never lost again. */
inline check() {
	if
	:: isQuiet() -> finished = last
	:: else
	fi;
	for (i : 0 .. FOLLOWERS - 1) { upload_is_missed = upload_is_missed || show(i) < finished };
	assert(!upload_is_missed);
	i = 0
}

inline forget(x) {
	w[x].kind = Idle; w[x].at = 0; w[x].page = 0; w[x].number = 0; w[x].read = 0;
	w[x].token = 0; w[x].seen = 0; w[x].told = 0; w[x].had = false
}
inline done(x) { forget(x); check() }
inline again(x) {
	if
	:: w[x].kind == Upload -> parts = parts | bit(w[x].page)
	:: w[x].kind == Change -> changes[w[x].number] = changes[w[x].number] | bit(w[x].page)
	:: w[x].kind == Refill -> refills = refills | bit(w[x].page)
	:: else
	fi;
	done(x)
}

#define MAX(a, b) (a > b -> a : b)
inline addToCopy(k, date) {
	if
	:: !there[k] -> guard[k] = 0; refills = refills | bit(k)
	:: there[k] && date > copied[k] -> copied[k] = date
	:: else -> guard[k] = 0
	fi
}

/* A change of state by an operator, with its task. */
inline join()  { events--; state = Joining; change++; changes[change] = bit(0); refills = 3; check() }
inline leave() { events--; state = Leaving; change++; changes[change] = bit(0); check() }

proctype Site() {
end:	do
	:: d_step { events > 0 -> events--; last++; parts = parts | bit(0); check() }
	:: d_step { events > 0 && (state == Absent || state == Leaving) -> join() }
	:: d_step { events > 0 && (state == Joining || state == Broadcast) -> leave() }
	:: d_step { losses > 0 && there[0] -> losses--; there[0] = false; copied[0] = 0; check() }
	:: d_step { guard[0] != 0 -> guard[0] = 0 }
	od
}

/* A read that finds no copy, and has been told a moment ago that there are no broadcast members,
 * goes by the set. Any other one walks, and asks for a refill. */
proctype Read() {
end:	do
	:: d_step { !OTHERS && state == Absent && !none[0] -> none[0] = true }
	:: d_step { none[0] ->
		none[0] = false;
		upload_is_missed = upload_is_missed || !there[0] && score[0] < finished;
		assert(!upload_is_missed)
	   }
	:: d_step { !there[0] && !has(refills, 0) && (OTHERS || state != Absent) -> refills = refills | bit(0) }
	od
}

#define isIn(x, what, step) (w[x].kind == what && w[x].at == step)
#define TAKE(x, p) d_step { w[x].kind == Idle && has(parts, p) -> parts = parts & ~bit(p); w[x].kind = Upload; w[x].page = p; w[x].at = 1 }
#define TAKE_CHANGE(x, n, p) d_step { w[x].kind == Idle && n <= CHANGES && has(changes[n], p) -> \
	changes[n] = changes[n] & ~bit(p); w[x].kind = Change; w[x].number = n; w[x].page = p; w[x].at = 1 }
#define TAKE_REFILL(x, k) d_step { w[x].kind == Idle && has(refills, k) -> refills = refills & ~bit(k); w[x].kind = Refill; w[x].page = k; w[x].at = 1 }

proctype Work(byte x) {
end:	do
	:: TAKE(x, 0) :: TAKE(x, 1) :: TAKE(x, 2)
	:: TAKE_CHANGE(x, 1, 0) :: TAKE_CHANGE(x, 1, 1)
	:: TAKE_CHANGE(x, 2, 0) :: TAKE_CHANGE(x, 2, 1)
	:: TAKE_CHANGE(x, 3, 0) :: TAKE_CHANGE(x, 3, 1)
	:: TAKE_CHANGE(x, 4, 0) :: TAKE_CHANGE(x, 4, 1)
	:: TAKE_REFILL(x, 0) :: TAKE_REFILL(x, 1)
	:: d_step { w[x].kind != Idle && events > 0 -> events--; again(x) } /* it dies */

	/* A part of a fan-out: the last upload, who the followers are, the adds. */
	:: d_step { isIn(x, Upload, 1) -> w[x].read = last; w[x].at = 2 }
	:: d_step { isIn(x, Upload, 2) -> w[x].told = state; w[x].at = 3 }
	:: d_step { isIn(x, Upload, 3) && w[x].told != Broadcast && w[x].page < FOLLOWERS ->
		score[w[x].page] = MAX(score[w[x].page], w[x].read);
		if
		:: w[x].page + 1 < FOLLOWERS || w[x].told != Absent -> parts = parts | bit(w[x].page + 1)
		:: else
		fi;
		done(x)
	   }
	:: d_step { isIn(x, Upload, 3) && w[x].told == Absent && w[x].page == FOLLOWERS -> done(x) }
#ifdef V_STOP_BEFORE_THE_SET_HAS_IT
	:: d_step { isIn(x, Upload, 3) && w[x].told == Broadcast && w[x].page > 0 -> done(x) }
	:: d_step { isIn(x, Upload, 3) && (w[x].told == Broadcast && w[x].page == 0 || w[x].told != Absent && w[x].page == FOLLOWERS) ->
#else
	:: d_step { isIn(x, Upload, 3) && (w[x].told == Broadcast || w[x].told != Absent && w[x].page == FOLLOWERS) ->
#endif
		addToCopy(0, w[x].read); w[x].at = 4 }
	:: d_step { isIn(x, Upload, 4) -> addToCopy(1, w[x].read); done(x) }

	/* A change of state: it is joining for a while, and then broadcast. Or it fans out to all
	 * followers, and then it is absent. */
	:: d_step { isIn(x, Change, 1) && (w[x].number != change || state != Joining && state != Leaving) ->
#ifdef V_ANY_CHANGE
		if
		:: state == Leaving -> w[x].at = 2
		:: else -> done(x)
		fi
#else
		if
		:: state == Absent -> refills = 3
		:: else
		fi;
		done(x)
#endif
	   }
#ifdef V_NO_DELAY
	:: d_step { isIn(x, Change, 1) && w[x].number == change && state == Joining ->
#else
	:: d_step { isIn(x, Change, 1) && w[x].number == change && state == Joining && !none[0] ->
#endif
		state = Broadcast; done(x) }
	:: d_step { isIn(x, Change, 1) && w[x].number == change && state == Leaving ->
#ifdef V_LEAVE_BEFORE_THE_FAN_OUT
		w[x].at = 4
#else
		w[x].at = 2
#endif
	   }
	:: d_step { isIn(x, Change, 2) -> w[x].read = last; w[x].at = 3 }
	:: d_step { isIn(x, Change, 3) ->
		score[w[x].page] = MAX(score[w[x].page], w[x].read);
		w[x].read = 0;
		if
		:: w[x].page + 1 < FOLLOWERS -> changes[w[x].number] = changes[w[x].number] | bit(w[x].page + 1); done(x)
		:: else -> w[x].at = 4
		fi
	   }
	:: d_step { isIn(x, Change, 4) ->
		if
#ifdef V_ANY_CHANGE
		:: state == Leaving -> state = Absent
#else
		:: state == Leaving && change == w[x].number -> state = Absent
#endif
		:: else
		fi;
		w[x].at = 5
	   }
	:: d_step { isIn(x, Change, 5) -> refills = 3; done(x) }

	/* A refill of a copy, under its guard. */
	:: d_step { isIn(x, Refill, 1) ->
		if
		:: guard[w[x].page] == 0 ->
			guard[w[x].page] = (w[1 - x].token == 1 -> 2 : 1)
		:: else
		fi;
		w[x].token = guard[w[x].page]; w[x].had = there[w[x].page]; w[x].seen = copied[w[x].page]; w[x].at = 2 }
	:: d_step { isIn(x, Refill, 2) -> w[x].told = (state == Absent -> Absent : Broadcast); w[x].read = (state == Absent -> 0 : last); w[x].at = 3 }
	:: d_step { isIn(x, Refill, 3) ->
		if
#ifdef V_COPY_IGNORES_GUARD
		:: w[x].had && !there[w[x].page] || w[x].told == Absent && there[w[x].page] && copied[w[x].page] != w[x].seen ->
#else
		:: guard[w[x].page] != w[x].token || w[x].had && !there[w[x].page] ||
		   w[x].told == Absent && there[w[x].page] && copied[w[x].page] != w[x].seen ->
#endif
			w[x].token = 0; w[x].had = false; w[x].seen = 0; w[x].told = 0; w[x].read = 0; w[x].at = 1
		:: else ->
			guard[w[x].page] = 0;
			if
			:: w[x].told == Absent -> copied[w[x].page] = 0; there[w[x].page] = OTHERS
			:: else -> there[w[x].page] = true; copied[w[x].page] = MAX(copied[w[x].page], w[x].read)
			fi;
			done(x)
		fi
	   }
	od
}

init {
	atomic {
		d_step {
			w[0].kind = Idle; w[1].kind = Idle;
			state = START;
			for (i : 0 .. FOLLOWERS - 1) {
				score[i] = last;
				there[i] = OTHERS || START == Broadcast;
				copied[i] = (START == Broadcast -> last : 0)
			};
			check()
		}
		run Site(); run Read(); run Work(0); run Work(1)
	}
}
