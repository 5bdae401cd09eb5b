/*
 * The queue: tasks, task_leases and parked_tasks, two producers, two workers and the
 * sweep. README.md says what is left out and why that is sound, and has the variants.
 *
 * A step is what no other transaction can look into: a whole transaction, where it
 * locks all that it needs before it writes, or else a part of one. A set of rows is a
 * bit mask, and a row's bit is its id, given in the order of the INSERTs, not of the
 * commits. There is one dedupe key, which a row has or lacks.
 */

#ifndef REPLAY
#define ROWS      3
#define SET       byte  /* of rows, or of changes */
#define PRODUCERS 2
#define WORKERS   2
#define LEASES    3     /* two that are known to a worker, one of a worker that died */
#define MAX       2     /* attempts */

#define KEYED       (bit(0) | bit(2))  /* changes whose task has the key */
#ifndef MORTAL
#define MORTAL      (bit(1) | bit(2))  /* changes whose task may expire */
#endif
#define DELAYED     bit(2)             /* changes whose task has a due_at */
#define FOLLOWED    bit(1)             /* changes whose task has a follow-up task */
#endif

#define NONE   255
#define bit(i) (1 << (i))

/* The tables, as committed. */
SET ready;                /* tasks */
SET parked;               /* parked_tasks: scheduled */
typedef Lease {           /* a row of task_leases; its index is its token */
	bool is;
	SET content, done;
};
Lease lease[LEASES];
byte holder = NONE;       /* the row with the key in tasks, committed or not */
byte parkedHolder = NONE; /* that in parked_tasks, which has a UNIQUE index of its own */
byte attempts[ROWS];
SET mortal, delayed;      /* rows with expires_at, with a due_at that has not come */
SET keyed;                /* rows that were inserted with a key */

SET gone;                 /* finished, expired, absorbed by another; or dead, in parked_tasks */

/* Open transactions. */
SET inserted[PRODUCERS], absorbing[PRODUCERS], said[PRODUCERS]; /* said: its changes */
byte absent[PRODUCERS];   /* where it has looked, and found no row with the key */
#define NOWHERE 0
#define TASKS   1
#define BOTH    2
SET locked[WORKERS];      /* the rows that a claim has read FOR UPDATE */

/* What workers remember. Nobody has a token that is used again, as tokens are random. */
byte token[WORKERS] = NONE;
SET held[WORKERS];                             /* the tasks that it has not finished */
SET asDone[WORKERS], asFailed[WORKERS], asBack[WORKERS]; /* a finish under way */
#ifdef V_NO_LOOK_AT_FRONT
byte cursor[WORKERS];
#endif

byte next;                /* the next id */
byte faults  = 1;         /* how many answers may be lost, workers die, claims fail */
byte returns = 1;         /* how many tasks may be handed back, which counts no attempt */

/* What the properties are about: for each row the changes that it stands for; the rows
 * and the changes that were committed; the changes whose task was finished, is dead, or
 * expired; those that a follow-up task was inserted for. */
SET stands[ROWS], born, changed, settled, followed;

/* The properties' names, for the messages of assert. */
byte in_no_place, in_two_places, finished_twice, absorbed_by_work_that_began,
	expired_though_it_must_not, follow_up_twice, duplicate_key, waits_for_ever;

/* What a step works with; zero after it, as a state is what is left by steps. */
byte i, j, low, high;
SET all, part;

inline tidy() { i = 0; j = 0; low = 0; high = 0; all = 0; part = 0 }

#define has(set, r) (((set) & bit(r)) != 0)
#ifdef V_NO_ABSORB_LOCK
#define unlocked()  (ready & ~(locked[0] | locked[1]))
#else
#define unlocked()  (ready & ~(locked[0] | locked[1] | absorbing[0] | absorbing[1]))
#endif

/* Q1: each committed task is in exactly one place. */
inline place(set) {
	in_two_places = in_two_places || (all & (set)) != 0;
	all = all | (set)
}

inline checkPlaces() {
	all = 0;
	place(ready); place(parked); place(gone);
	for (j : 0 .. LEASES - 1) {
		if
		:: lease[j].is -> place(lease[j].content & ~lease[j].done)
		:: else
		fi
	}
	assert(!in_two_places);
	in_no_place = (born & ~all) != 0;
	assert(!in_no_place)
}

/* A row leaves its table, and the UNIQUE index with it. */
inline freeKey(r) {
	holder = (holder == r -> NONE : holder);
	parkedHolder = (parkedHolder == r -> NONE : parkedHolder)
}

/* A row goes back into tasks: without a key, if it was claimed. */
inline putBack(r) {
	ready = ready | bit(r);
#ifdef V_KEY_BACK
	if
	:: has(keyed, r) ->
		duplicate_key = holder != NONE && holder != r;
		assert(!duplicate_key);
		holder = r
	:: else
	fi
#endif
}

/* ---- Producers: the site's transactions, and activityd's own ---- */

/* Rows that open transactions have inserted or locked: all, and all but those of one producer. */
#ifdef V_NO_ABSORB_LOCK
#define isLockedBefore(p, r) has(inserted[1 - (p)] | locked[0] | locked[1], r)
#else
#define isLockedBefore(p, r) has(inserted[1 - (p)] | absorbing[1 - (p)] | locked[0] | locked[1], r)
#endif
#define isLocked(r) (isLockedBefore(0, r) || isLockedBefore(1, r))

/* A task with the key: look whether a row absorbs it, in tasks, then in parked_tasks, FOR UPDATE;
 * if not, INSERT; if that meets a row that came in between, look again. Each waits for others. */
#define canLook(p) (absent[p] == NOWHERE && (holder == NONE || !isLockedBefore(p, holder)))
inline look(p, c) {
	if
	:: holder != NONE -> absorb(p, holder, c)
	:: else -> absent[p] = TASKS
	fi
}

#define canLookOn(p, c) (absent[p] == TASKS && (parkedHolder == NONE || !isLockedBefore(p, parkedHolder) && \
	(has(DELAYED, c) || holder == NONE || !isLockedBefore(p, holder))))
inline lookOn(p, c) {
	if
	:: parkedHolder == NONE -> absent[p] = BOTH
	:: parkedHolder != NONE && has(DELAYED, c) -> absorb(p, parkedHolder, c)
	/* It is to run at once now, and moves. */
	:: parkedHolder != NONE && !has(DELAYED, c) && holder == NONE ->
		absorb(p, parkedHolder, c);
		holder = parkedHolder; parkedHolder = NONE
	:: parkedHolder != NONE && !has(DELAYED, c) && holder != NONE -> absent[p] = NOWHERE /* refused */
	fi
}

inline absorb(p, r, c) {
	absorbing[p] = absorbing[p] | bit(r);
	said[p] = said[p] | bit(c);
	stands[r] = stands[r] | bit(c);
	absent[p] = NOWHERE
}

#define canInsert(p) (absent[p] == BOTH && (holder == NONE || !isLockedBefore(p, holder)))
inline insertKeyed(p, c) {
	if
	:: holder == NONE -> holder = next; keyed = keyed | bit(next); insert(p, c)
	:: else /* refused */
	fi;
	absent[p] = NOWHERE
}

inline insert(p, c) {
	inserted[p] = inserted[p] | bit(next);
	said[p] = said[p] | bit(c);
	stands[next] = bit(c);
	if
	:: has(MORTAL, c) -> mortal = mortal | bit(next)
	:: else
	fi;
	if
	:: has(DELAYED, c) -> delayed = delayed | bit(next)
	:: else
	fi;
	next++
}

inline commit(p) {
	ready = ready | inserted[p];
	born = born | inserted[p];
	changed = changed | said[p];
	absorbed_by_work_that_began = (absorbing[p] & ~(ready | parked)) != 0;
	assert(!absorbed_by_work_that_began);
	for (i : 0 .. ROWS - 1) {
		if
		:: has(absorbing[p], i) ->
			/* It lives as long, and runs as early, as any that it stands for. */
			if
			:: (stands[i] & ~MORTAL) != 0 -> mortal = mortal & ~bit(i)
			:: else
			fi;
			if
			:: (stands[i] & ~DELAYED) != 0 ->
				delayed = delayed & ~bit(i);
				if
				:: has(parked, i) -> parked = parked & ~bit(i); ready = ready | bit(i)
				:: else
				fi
			:: else
			fi
		:: else
		fi
	}
	inserted[p] = 0; absorbing[p] = 0; said[p] = 0;
	checkPlaces();
	tidy()
}

inline rollback(p) {
	for (i : 0 .. ROWS - 1) {
		if
		:: has(inserted[p] | absorbing[p], i) -> stands[i] = stands[i] & ~said[p]
		:: else
		fi;
		if
		:: has(absorbing[p] & parked, i) && holder == i -> holder = NONE; parkedHolder = i
		:: else
		fi;
		if
		:: has(inserted[p], i) -> freeKey(i); mortal = mortal & ~bit(i); delayed = delayed & ~bit(i)
		:: else
		fi
	}
	inserted[p] = 0; absorbing[p] = 0; said[p] = 0;
	tidy()
}

/* ---- The claim ---- */

/* Its first statements: some rows, FOR UPDATE SKIP LOCKED. Which, depends on the cursor and on
 * how many it wants; here it may be any. */
#define freeLease(l) (!lease[l].is && token[0] != l && token[1] != l)
#define anyFreeLease() (freeLease(0) || freeLease(1) || freeLease(2))
#ifdef V_NO_LOOK_AT_FRONT
#define canClaim(w, rows) (token[w] == NONE && locked[w] == 0 && (rows & ~unlocked()) == 0 && anyFreeLease() && \
	(rows & (bit(cursor[w]) - 1)) == 0)
#else
#define canClaim(w, rows) (token[w] == NONE && locked[w] == 0 && (rows & ~unlocked()) == 0 && anyFreeLease())
#endif

/* The rest: DELETE exactly these, INSERT one lease, COMMIT. The key is free by that. */
inline commitClaim(w) {
	token[w] = 0;
	do
	:: lease[token[w]].is || token[1 - w] == token[w] -> token[w]++
	:: else -> break
	od;
	lease[token[w]].is = true;
	lease[token[w]].content = locked[w];
	lease[token[w]].done = 0;
	held[w] = locked[w];
	low = NONE;
	for (i : 0 .. ROWS - 1) {
		if
		:: has(locked[w], i) ->
			attempts[i]++;
			delayed = delayed & ~bit(i);
			high = i;
#ifdef V_NO_LOOK_AT_FRONT
			cursor[w] = i;
#endif
			low = (low == NONE -> i : low);
#ifndef V_KEY_KEPT
			freeKey(i)
#endif
		:: else
		fi
	}
	part = locked[w];
#ifdef V_DELETE_RANGE
	part = (bit(high + 1) - 1) & ~(bit(low) - 1);
#endif
	ready = ready & ~part;
	locked[w] = 0;
	checkPlaces();
	tidy()
}

/* ---- The end of tasks ---- */

/* Its INSERT, of which only the number matters: the rest of its life is any task's. */
inline followUp(r) {
	follow_up_twice = (stands[r] & followed) != 0;
	assert(!follow_up_twice);
	followed = followed | stands[r] & FOLLOWED
}

/* The row is finished, dead or expired. What is not needed any more is forgotten, so that
 * there are fewer states. */
inline leave(r) {
	gone = gone | bit(r);
	settled = settled | stands[r];
	stands[r] = 0;
	attempts[r] = 0;
	mortal = mortal & ~bit(r);
	delayed = delayed & ~bit(r)
}

/* One transaction: lock the lease row by its token; what ends now; its follow-up tasks. */
inline finish(w) {
	part = asDone[w] | asFailed[w] | asBack[w];
#ifndef V_FINISH_WITHOUT_LEASE
	if
	:: !lease[token[w]].is -> part = 0; held[w] = 0
	:: else ->
#ifndef V_FINISH_WITHOUT_DONE
		part = part & ~lease[token[w]].done
#else
		skip
#endif
	fi;
#endif
	for (i : 0 .. ROWS - 1) {
		if
		:: has(part & asDone[w], i) ->
			finished_twice = has(gone, i);
			assert(!finished_twice);
			followUp(i);
			leave(i)
		:: has(part & asFailed[w], i) && attempts[i] >= MAX -> followUp(i); leave(i)
		:: has(part & asFailed[w], i) && attempts[i] < MAX -> parked = parked | bit(i)
		:: has(part & asBack[w], i) -> attempts[i]--; putBack(i)
		:: else
		fi
	}
	if
	:: lease[token[w]].is ->
		lease[token[w]].done = lease[token[w]].done | part;
		if
		:: (lease[token[w]].content & ~lease[token[w]].done) == 0 ->
			lease[token[w]].is = false; lease[token[w]].content = 0; lease[token[w]].done = 0
		:: else
		fi
	:: else
	fi;
	checkPlaces();
	tidy()
}

/* The worker has its answer. */
inline answered(w) {
	held[w] = held[w] & ~(asDone[w] | asFailed[w] | asBack[w]);
	asDone[w] = 0; asFailed[w] = 0; asBack[w] = 0;
	if
	:: held[w] == 0 -> token[w] = NONE
	:: else
	fi
}

/* It died, or gave up, and knows nothing. */
inline forget(w) {
	token[w] = NONE; held[w] = 0; locked[w] = 0;
	asDone[w] = 0; asFailed[w] = 0; asBack[w] = 0
}

#define isParked(r) has(parked & ~(absorbing[0] | absorbing[1]), r)

/* Absorb: a held task takes over one that is the same work and has not been started. */
#define sameWork(r, s) (has(keyed, r) && has(keyed, s))
#define canMerge(w, r, s) (token[w] != NONE && asDone[w] + asFailed[w] + asBack[w] == 0 && has(held[w], r) && \
	(has(unlocked(), s) || isParked(s)) && sameWork(r, s) && holdsLease(w, r))
#ifdef V_ABSORB_WITHOUT_LEASE
#define holdsLease(w, r) true
#else
#define holdsLease(w, r) (lease[token[w]].is && !has(lease[token[w]].done, r))
#endif

inline merge(w, r, s) {
	ready = ready & ~bit(s);
	parked = parked & ~bit(s);
	stands[r] = stands[r] | stands[s];
	stands[s] = 0;
	leave(s);
	freeKey(s);
#ifndef V_ABSORB_STILL_EXPIRES
	mortal = mortal & ~bit(r);
#endif
	checkPlaces();
	tidy()
}

/* ---- The sweep ---- */

/* A lease that has ended: whenever it likes, as the model has no clock. */
inline takeBack(l, what) {
	for (i : 0 .. ROWS - 1) {
		if
		:: has(what, i) && attempts[i] >= MAX -> leave(i)
		:: has(what, i) && attempts[i] < MAX -> putBack(i)
		:: else
		fi
	}
	lease[l].is = false; lease[l].content = 0; lease[l].done = 0;
	checkPlaces();
	tidy()
}

/* A claim that meets such a row does this, too. */
#define canExpire(r) has(unlocked() & mortal, r)
inline expire(r) {
	ready = ready & ~bit(r);
	expired_though_it_must_not = (stands[r] & ~MORTAL) != 0;
	assert(!expired_though_it_must_not);
	freeKey(r);
	leave(r);
	checkPlaces();
	tidy()
}

/* A claim met a row that is not due yet, and moved it. It keeps its key, and absorbs; unless a row
 * in parked_tasks has the key already: then it stays. */
#define canPark(r) (has(unlocked() & delayed, r) && (holder != r || parkedHolder == NONE))
inline park(r) {
	if
	:: holder == r -> holder = NONE; parkedHolder = r
	:: else
	fi;
	ready = ready & ~bit(r);
	parked = parked | bit(r);
	checkPlaces();
	tidy()
}

/* It is due, and moves back, with its key, unless another row has it. */
#define canUnpark(r) (isParked(r) && (parkedHolder != r || holder == NONE || !isLocked(holder)))
inline unpark(r) {
	parked = parked & ~bit(r);
	delayed = delayed & ~bit(r);
	if
	:: parkedHolder == r ->
		parkedHolder = NONE;
#ifdef V_UNPARK_KEEPS_KEY
		duplicate_key = holder != NONE;
		assert(!duplicate_key);
#endif
		holder = (holder == NONE -> r : holder)
	:: else
	fi;
	putBack(r);
	checkPlaces();
	tidy()
}

#ifndef REPLAY

/* A task with the key. */
#define ENQUEUE(p, c) do \
	:: d_step { !has(said[p], c) && canLook(p) -> look(p, c) } \
	:: d_step { canLookOn(p, c) -> lookOn(p, c) } \
	:: d_step { canInsert(p) -> insertKeyed(p, c) } \
	:: has(said[p], c) -> break \
	od

proctype Producer0() {
	ENQUEUE(0, 0);
	if
	:: d_step { commit(0) }
	:: d_step { rollback(0) }
	fi
}

/* Change 1 and change 2 in one transaction, or in two. */
proctype Producer1() {
	d_step { insert(1, 1) }
	if
	:: d_step { commit(1) }
	:: d_step { rollback(1) }
	:: true
	fi;
	ENQUEUE(1, 2);
	if
	:: d_step { commit(1) }
	:: d_step { rollback(1) }
	fi
}

#define planning(w) (token[w] != NONE && (asDone[w] | asFailed[w] | asBack[w]) == 0)
#define planned(w)  ((asDone[w] | asFailed[w] | asBack[w]) != 0)

inline plan(w, r) {
	if
	:: has(held[w], r) -> asDone[w] = asDone[w] | bit(r)
	:: has(held[w], r) -> asFailed[w] = asFailed[w] | bit(r)
	:: has(held[w], r) && returns > 0 -> asBack[w] = asBack[w] | bit(r); returns--
	:: !has(held[w], r) || planned(w) || held[w] >= bit(r + 1) /* later, but not all of them */
	fi
}

#define CLAIM(rows) d_step { canClaim(w, rows) -> locked[w] = rows }
#define MERGE(r, s) d_step { canMerge(w, r, s) -> merge(w, r, s) }

proctype Worker(byte w) {
end:	do
	:: CLAIM(1) :: CLAIM(2) :: CLAIM(3) :: CLAIM(4) :: CLAIM(5) :: CLAIM(6) :: CLAIM(7)
	:: d_step { locked[w] != 0 -> commitClaim(w) }
	/* The claim fails, and takes nothing. */
	:: d_step { locked[w] != 0 && faults > 0 -> locked[w] = 0; faults-- }
	/* The worker dies; or the answer to a claim was lost, and it gives the lease up. */
	:: d_step { token[w] != NONE && faults > 0 -> forget(w); faults-- }
	/* It finishes some of its tasks, or all. */
	:: atomic {
		planning(w) ->
		plan(w, 0); plan(w, 1); plan(w, 2);
		if
		:: d_step { finish(w); answered(w); tidy() }
		:: d_step { faults > 0 -> finish(w); faults-- } /* without an answer */
		fi
	}
	:: d_step { planned(w) -> finish(w); answered(w); tidy() }
	:: MERGE(0, 1) :: MERGE(0, 2) :: MERGE(1, 0) :: MERGE(1, 2) :: MERGE(2, 0) :: MERGE(2, 1)
	od
}

#define TAKEBACK(l) d_step { lease[l].is -> takeBack(l, lease[l].content & ~lease[l].done) }
#define EXPIRE(r)   d_step { canExpire(r) -> expire(r) }
#define PARK(r)     d_step { canPark(r) -> park(r) }
#define UNPARK(r)   d_step { canUnpark(r) -> unpark(r) }

proctype Sweep() {
	SET read;
end:	do
#ifndef V_SWEEP_WITHOUT_LOCK
	:: TAKEBACK(0) :: TAKEBACK(1) :: TAKEBACK(2)
#else
	:: d_step { lease[0].is -> read = lease[0].content & ~lease[0].done };
	   d_step { takeBack(0, read); read = 0 }
#endif
#ifdef V_LEASE_DELETED_BY_OTHERS
	:: d_step { lease[0].is -> lease[0].is = false; lease[0].content = 0; lease[0].done = 0; checkPlaces() }
#endif
	:: EXPIRE(0) :: EXPIRE(1) :: EXPIRE(2)
	:: PARK(0) :: PARK(1) :: PARK(2)
	:: UNPARK(0) :: UNPARK(1) :: UNPARK(2)
	od
}

/* Nothing waits for ever: where no step is left, all is settled. That each run gets there
 * is shown by a second search, which finds no cycle of states. */
#define open() (ready | parked | locked[0] | locked[1] | held[0] | held[1])
proctype Rest() {
	timeout;
	d_step {
		checkPlaces();
		tidy();
		waits_for_ever = open() != 0 || lease[0].is || lease[1].is || lease[2].is ||
			(changed & ~settled) != 0;
		assert(!waits_for_ever)
	}
}

init {
	atomic { run Producer0(); run Producer1(); run Worker(0); run Worker(1); run Sweep(); run Rest() }
}

#endif
