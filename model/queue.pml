/*
 * The queue: tasks and held_keys, two producers, two workers and the sweep. README.md says
 * what is left out and why that is sound, and has the variants.
 *
 * A step is what no other transaction can look into: a whole transaction, where it locks all
 * that it needs before it writes, or else a part of it. A set of rows is a bit mask, and a row's
 * bit is its id, given in the order of the INSERTs, not of the commits. There is one dedupe key
 * and one ordering key; a row has each or lacks it.
 */

#define ROWS      3
#define SET       byte  /* of rows, or of changes */
#define PRODUCERS 2
#define WORKERS   2
#define TOKENS    3     /* two that a worker knows, and that of a worker that died */
#define MAX       2     /* attempts */
#define NONE      255
#define bit(i)    (1 << (i))
#define has(set, r) (((set) & bit(r)) != 0)

#define KEYED    (bit(0) | bit(2))  /* changes whose task has the dedupe key */
#ifndef MORTAL
#define MORTAL   bit(2)             /* changes whose task may expire */
#endif
#ifndef DELAYED
#define DELAYED  bit(2)             /* changes whose task has a run_at to come */
#endif
#ifndef ORDERED
#define ORDERED  (bit(0) | bit(1) | bit(2)) /* changes whose task has the ordering key */
#endif
#define FOLLOWED bit(1)             /* changes whose task has a follow-up task */

/* The tables, as committed. */
SET waiting, behind, scheduled, running; /* tasks, by state; the dead are gone, too */
byte lease[ROWS] = NONE;                 /* the token, of those that run */
byte attempts[ROWS];
SET mortal, delayed;      /* rows with expires_at, with a run_at that has not come */
SET keyed, ordered;       /* rows that were inserted with the dedupe key, with the ordering key */
byte holder = NONE;       /* the row with the dedupe key, committed or not */
byte named = NONE;        /* held_keys: the task of the ordering key that may run; NONE: there is no row */
SET gone;                 /* finished, expired, dead, or merged into another */

/* Open transactions. */
SET inserted[PRODUCERS], absorbing[PRODUCERS], said[PRODUCERS]; /* said: its changes */
bool absent[PRODUCERS];   /* it has looked, and found no row with the dedupe key */
SET locked[WORKERS];      /* the rows that a claim has read FOR UPDATE SKIP LOCKED */
byte first[WORKERS] = NONE; /* what it has read as the first waiting task of the ordering key */
SET shares;               /* the workers that have locked the row of held_keys to read it */
byte writer = NONE;       /* the worker that has inserted it */

/* What workers remember. Nobody has a token that is used again, as tokens are random. */
byte token[WORKERS] = NONE;
SET held[WORKERS];                             /* the tasks that it has not finished */
SET asDone[WORKERS], asFailed[WORKERS], asReleased[WORKERS]; /* a finish under way */

byte next;                /* the next id */
byte faults   = 1;        /* how many answers may be lost, workers die, claims fail */
byte releases = 1;        /* how many tasks may be released, which counts no attempt */

/* What the properties are about: for each row the changes that it stands for, and the tasks that were
 * committed before it; for each worker the changes that it knew when it began; the changes that were
 * committed, that are settled, that have a follow-up task; tokens whose time was over; rows that had to wait for a time. */
SET stands[ROWS], earlier[ROWS], knows[WORKERS], changed, settled, followed, over, timed;

/* The properties' names, for the messages of assert. */
bool done_by_work_that_began_before, expired_though_it_must_not, follow_up_twice,
	duplicate_key, two_holders_of_one_task, two_holders_of_one_key, overtaken, key_held_for_ever, waits_for_ever;

/* What a step works with; zero after it, as a state is what is left by steps. */
byte i;
SET part;

inline tidy() { i = 0; part = 0 }

#ifdef V_NO_ABSORB_LOCK
#define untouched() ~(locked[0] | locked[1])
#else
#define untouched() ~(locked[0] | locked[1] | absorbing[0] | absorbing[1])
#endif

/* No claim has locked the row of held_keys. */
#define keyIsFree() (shares == 0 && writer == NONE)

/* UPDATE tasks SET state. */
inline become(r, state) {
	waiting = waiting & ~bit(r); behind = behind & ~bit(r); scheduled = scheduled & ~bit(r); running = running & ~bit(r);
	state = state | bit(r)
}

/* The row is finished, dead, expired or merged. What is not needed any more is forgotten, so that
 * there are fewer states. */
inline leave(r) {
	become(r, gone);
	settled = settled | stands[r];
	stands[r] = 0; attempts[r] = 0; lease[r] = NONE; earlier[r] = 0;
	mortal = mortal & ~bit(r); delayed = delayed & ~bit(r); timed = timed & ~bit(r);
	holder = (holder == r -> NONE : holder)
}

/* The row of held_keys is locked: the next task of the key is named, or the row deleted. */
#ifdef V_NEXT_OF_BEHIND_ALONE
#define nextOnes() (behind & ordered)
#else
#define nextOnes() ((waiting & ~delayed | behind) & ordered)
#endif
#ifdef V_NEXT_BY_AN_OLD_VIEW
SET view = NONE;          /* what a finish has read before it locks held_keys */
#define read_view() (view == NONE -> nextOnes() : view & nextOnes())
#else
#define read_view() nextOnes()
#endif
inline advance() {
	part = read_view();
	named = (has(part, 0) -> 0 : (has(part, 1) -> 1 : (has(part, 2) -> 2 : NONE)));
	if
	:: named != NONE && has(behind & untouched(), named) -> become(named, waiting)
	:: else /* where it is locked, the sweep does it */
	fi
}

inline advanceFrom(r) {
	if
	:: named == r -> advance()
	:: else
	fi
}

/* ---- Producers: the site's transactions, and activityd's own ---- */

/* A task with the dedupe key: look whether a row absorbs it, FOR UPDATE; if not, INSERT; if that meets a row
 * that came in between, look again. Each waits for others. */
#ifdef V_NO_ABSORB_LOCK
#define isOthers(p) has(inserted[1 - (p)] | locked[0] | locked[1], holder)
#else
#define isOthers(p) has(inserted[1 - (p)] | absorbing[1 - (p)] | locked[0] | locked[1], holder)
#endif
#define canLook(p) (holder == NONE || !isOthers(p))
inline look(p, c) {
	if
	:: holder == NONE -> absent[p] = true
	:: else ->
		absorbing[p] = absorbing[p] | bit(holder);
		said[p] = said[p] | bit(c);
		stands[holder] = stands[holder] | bit(c)
	fi
}

inline insertKeyed(p, c) {
	if
	:: holder == NONE -> holder = next; keyed = keyed | bit(next); insert(p, c)
	:: else /* refused */
	fi;
	absent[p] = false
}

inline insert(p, c) {
	inserted[p] = inserted[p] | bit(next);
	said[p] = said[p] | bit(c);
	stands[next] = bit(c);
	mortal = mortal | (has(MORTAL, c) -> bit(next) : 0);
	delayed = delayed | (has(DELAYED, c) -> bit(next) : 0);
	ordered = ordered | (has(ORDERED, c) -> bit(next) : 0);
	next++
}

inline commit(p) {
	/* What stands for a change must not have begun. (Its claim is not done by the change, which it cannot see.) */
	done_by_work_that_began_before = (absorbing[p] & (running | gone)) != 0;
	assert(!done_by_work_that_began_before);
	for (i : 0 .. ROWS - 1) {
		if
		:: has(inserted[p], i) -> earlier[i] = (waiting | behind) & ordered & ~delayed & ~timed & (has(ordered, i) -> bit(i) - 1 : 0)
		:: else
		fi;
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
				:: has(scheduled, i) -> become(i, waiting)
				:: else
				fi
			:: else
			fi
		:: else
		fi
	}
	waiting = waiting | inserted[p];
	changed = changed | said[p];
	inserted[p] = 0; absorbing[p] = 0; said[p] = 0;
	tidy()
}

inline rollback(p) {
	for (i : 0 .. ROWS - 1) {
		if
		:: has(inserted[p] | absorbing[p], i) -> stands[i] = stands[i] & ~said[p]
		:: else
		fi;
		if
		:: has(inserted[p], i) ->
			holder = (holder == i -> NONE : holder);
			mortal = mortal & ~bit(i); delayed = delayed & ~bit(i); ordered = ordered & ~bit(i); keyed = keyed & ~bit(i)
		:: else
		fi
	}
	inserted[p] = 0; absorbing[p] = 0; said[p] = 0;
	tidy()
}

#define ENQUEUE(p, c) do \
	:: d_step { !has(said[p], c) && !absent[p] && canLook(p) -> look(p, c) } \
	:: d_step { absent[p] && canLook(p) -> insertKeyed(p, c) } \
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

/* ---- The claim ---- */

/* Its first statement: the first rows that wait and are not locked, FOR UPDATE SKIP LOCKED; how many, is up to the worker.
 * up: all up to the last of them. */
#define freeToken(l) (token[0] != l && token[1] != l && lease[0] != l && lease[1] != l && lease[2] != l)
#define canClaim(w, rows, up) (token[w] == NONE && locked[w] == 0 && (waiting & untouched() & (up)) == rows && (rows & delayed) == 0 && \
	(freeToken(0) || freeToken(1) || freeToken(2)))
#define CLAIM(rows, up) d_step { canClaim(w, rows, up) -> locked[w] = rows }

/* Then, for tasks with the ordering key: read the first task of the key; INSERT IGNORE INTO held_keys; read its row, and lock it. */
#define wantsKey(w) ((locked[w] & ordered) != 0)
#define hasKey(w)   (writer == w || has(shares, w))
#ifdef V_CLAIM_NAMES_ITS_OWN
#define firstWaiting(w) (locked[w] & ordered)
#else
#define firstWaiting(w) (waiting & ordered & ~delayed)
#endif
inline readFirst(w) {
	part = firstWaiting(w);
	first[w] = (has(part, 0) -> 0 : (has(part, 1) -> 1 : 2));
	part = 0
}
inline takeKey(w) {
	if
	:: named == NONE -> named = first[w]; writer = w
	:: else -> shares = shares | bit(w)
	fi;
	first[w] = NONE
}

/* The rest: UPDATE these, COMMIT. The dedupe key is free by that. */
#define inHand(w) (token[w] == NONE || has(over, token[w]) -> 0 : held[w] & ~asDone[w] & ~asFailed[w] & ~asReleased[w])
#ifdef V_NO_HELD_KEYS
#define mayRun(w) locked[w]
#else
#define mayRun(w) (locked[w] & (~ordered | (named == NONE -> 0 : bit(named))))
#endif
inline commitClaim(w) {
	part = mayRun(w);
	two_holders_of_one_task = (part & inHand(1 - w)) != 0;
	assert(!two_holders_of_one_task);
	two_holders_of_one_key = (part & ordered) != 0 && (inHand(1 - w) & ordered) != 0;
	assert(!two_holders_of_one_key);
	behind = behind | locked[w] & ~part;
	waiting = waiting & ~locked[w];
	running = running | part;
	if
	:: part != 0 ->
		token[w] = (freeToken(0) -> 0 : (freeToken(1) -> 1 : 2));
		over = over & ~bit(token[w]);
		held[w] = part
	:: else
	fi;
	for (i : 0 .. ROWS - 1) {
		if
		:: has(part, i) ->
			overtaken = overtaken || (earlier[i] & (waiting | behind) & ~delayed & ~timed) != 0;
			earlier[i] = 0;
			attempts[i]++;
			lease[i] = token[w];
			knows[w] = knows[w] | stands[i];
#ifndef V_KEY_KEPT
			holder = (holder == i -> NONE : holder)
#endif
		:: else
		fi
	}
#ifndef V_NO_HELD_KEYS /* whose two holders are what is looked for */
	assert(!overtaken);
#endif
	endClaim(w);
	tidy()
}

inline endClaim(w) {
	locked[w] = 0; first[w] = NONE;
	shares = shares & ~bit(w);
	writer = (writer == w -> NONE : writer)
}

inline failClaim(w) {
	named = (writer == w -> NONE : named);
	endClaim(w)
}

/* ---- The end of tasks ---- */

/* Its INSERT, of which only the number matters: the rest of its life is any task's. */
inline followUp(r) {
	follow_up_twice = (stands[r] & followed) != 0;
	assert(!follow_up_twice);
	followed = followed | stands[r] & FOLLOWED
}

/* A row waits again, as the first of its key: without its dedupe key, which may have come again. */
inline again(r) {
	become(r, waiting);
	lease[r] = NONE;
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

#ifdef V_FINISH_WITHOUT_LEASE
#define isMine(w, r) has(waiting | behind | scheduled | running, r)
#else
#define isMine(w, r) (has(running, r) && lease[r] == token[w])
#endif
/* One transaction: lock the rows by id and lease; write; follow-up tasks; lock held_keys, and name the next. */
#define canFinish(w) (keyIsFree() || ((asDone[w] | asFailed[w]) & ordered) == 0)
inline finish(w) {
	for (i : 0 .. ROWS - 1) {
		if
		:: has(asDone[w], i) && isMine(w, i) ->
			done_by_work_that_began_before = (stands[i] & ~knows[w]) != 0;
			assert(!done_by_work_that_began_before);
			followUp(i);
			leave(i);
			advanceFrom(i)
		:: has(asFailed[w], i) && isMine(w, i) && attempts[i] >= MAX -> followUp(i); leave(i); advanceFrom(i)
		:: has(asFailed[w], i) && isMine(w, i) && attempts[i] < MAX ->
			again(i);
			become(i, scheduled); timed = timed | bit(i);
			advanceFrom(i)
		:: has(asReleased[w], i) && isMine(w, i) -> attempts[i]--; again(i)
		:: else
		fi
	}
	tidy()
}

/* The worker has its answer. */
inline answered(w) {
	held[w] = held[w] & ~(asDone[w] | asFailed[w] | asReleased[w]);
	asDone[w] = 0; asFailed[w] = 0; asReleased[w] = 0;
	if
	:: held[w] == 0 -> forget(w)
	:: else
	fi
}

/* It died, or gave up, and knows nothing. */
inline forget(w) {
	token[w] = NONE; held[w] = 0; knows[w] = 0; asDone[w] = 0; asFailed[w] = 0; asReleased[w] = 0
}

/* Dedupe: a task that runs takes over one that is the same work and has not begun. */
#define canMerge(w, r, s) (token[w] != NONE && !planned(w) && has(held[w], r) && has((waiting | behind | scheduled) & untouched(), s) && \
	has(keyed, r) && has(keyed, s) && holdsLease(w, r) && (keyIsFree() || named != s))
#ifdef V_MERGE_WITHOUT_LEASE
#define holdsLease(w, r) true
#else
#define holdsLease(w, r) isMine(w, r)
#endif
inline merge(w, r, s) {
	stands[r] = stands[r] | stands[s];
	knows[w] = knows[w] | stands[s];
	stands[s] = 0;
	leave(s);
	advanceFrom(s);
#ifndef V_MERGE_STILL_EXPIRES
	mortal = mortal & ~bit(r);
#endif
	tidy()
}

#define planning(w) (token[w] != NONE && !planned(w))
#define planned(w)  ((asDone[w] | asFailed[w] | asReleased[w]) != 0)
inline plan(w, r) {
	if
	:: has(held[w], r) -> asDone[w] = asDone[w] | bit(r)
	:: has(held[w], r) -> asFailed[w] = asFailed[w] | bit(r)
	:: has(held[w], r) && releases > 0 -> asReleased[w] = asReleased[w] | bit(r); releases--
	:: !has(held[w], r) || planned(w) || held[w] >= bit(r + 1) /* later, but not all of them */
	fi
}

#define MERGE(r, s) d_step { canMerge(w, r, s) -> merge(w, r, s) }

proctype Worker(byte w) {
end:	do
	:: CLAIM(1, 1) :: CLAIM(2, 3) :: CLAIM(3, 3) :: CLAIM(4, 7) :: CLAIM(5, 7) :: CLAIM(6, 7) :: CLAIM(7, 7)
#ifdef V_NO_HELD_KEYS
	:: d_step { locked[w] != 0 -> commitClaim(w) }
#else
	:: d_step { wantsKey(w) && first[w] == NONE && !hasKey(w) -> readFirst(w) }
	:: d_step { first[w] != NONE && writer == NONE -> takeKey(w) }
	:: d_step { locked[w] != 0 && (!wantsKey(w) || hasKey(w)) -> commitClaim(w) }
#endif
	/* The claim fails, and takes nothing. */
	:: d_step { locked[w] != 0 && faults > 0 -> failClaim(w); faults-- }
	/* The worker dies; or the answer to a claim was lost, and it gives the lease up. */
	:: d_step { token[w] != NONE && faults > 0 -> forget(w); faults-- }
	/* It finishes some of its tasks, or all. */
	:: atomic { planning(w) -> plan(w, 0); plan(w, 1); plan(w, 2) }
#ifdef V_NEXT_BY_AN_OLD_VIEW
	:: d_step { planned(w) && view == NONE -> view = nextOnes() };
	   d_step { canFinish(w) -> finish(w); answered(w); view = NONE }
#endif
	:: d_step { planned(w) && canFinish(w) -> finish(w); answered(w); tidy() }
	:: d_step { planned(w) && canFinish(w) && faults > 0 -> finish(w); faults-- } /* without an answer */
	:: MERGE(0, 1) :: MERGE(0, 2) :: MERGE(1, 0) :: MERGE(1, 2) :: MERGE(2, 0) :: MERGE(2, 1)
	od
}

/* ---- The sweep ---- */

/* The rows of a lease, and those of them that have no attempt left. */
#define ofLease(l) ((has(running, 0) && lease[0] == l -> bit(0) : 0) | (has(running, 1) && lease[1] == l -> bit(1) : 0) | (has(running, 2) && lease[2] == l -> bit(2) : 0))
#define spent() ((attempts[0] >= MAX -> bit(0) : 0) | (attempts[1] >= MAX -> bit(1) : 0) | (attempts[2] >= MAX -> bit(2) : 0))

/* A lease that has ended: whenever it likes, as the model has no clock. The rows keep the key, unless they are dead. */
#define canTakeBack(rows) ((rows) != 0 && (keyIsFree() || ((rows) & spent() & ordered) == 0))
inline takeBack() { /* the rows of read */
	for (i : 0 .. ROWS - 1) {
		if
		:: has(read, i) && attempts[i] >= MAX -> leave(i); advanceFrom(i)
		:: has(read, i) && attempts[i] < MAX -> again(i)
		:: else
		fi
	}
	tidy()
}

/* A claim does this, too. */
#define canExpire(r) (has((waiting | behind) & untouched() & mortal, r) && (keyIsFree() || named != r))
inline expire(r) {
	expired_though_it_must_not = (stands[r] & ~MORTAL) != 0;
	assert(!expired_though_it_must_not);
	leave(r);
	advanceFrom(r);
	tidy()
}

/* An operator deletes a row, and names no next task. */
#define canDiscard(r) has((waiting | behind | scheduled) & untouched() & mortal, r)

/* A claim met a row before its time; it is due. */
#define canPark(r)   has(waiting & untouched() & delayed, r)
#define canUnpark(r) has(scheduled & untouched(), r)
inline park(r)   { become(r, scheduled) }
inline unpark(r) { become(r, waiting); delayed = delayed & ~bit(r) }

/* held_keys names a task that neither runs nor waits: the next one is named. */
#define isIdle() (named != NONE && !has(running | waiting, named))
#define canMend() (isIdle() && keyIsFree() && !has(behind & ~untouched(), named))
inline mend() {
	advance();
	tidy()
}

#define TAKEBACK(l) d_step { canTakeBack(ofLease(l)) -> over = over | bit(l); read = ofLease(l); takeBack(); read = 0 }
#define EXPIRE(r)   d_step { canExpire(r) -> expire(r) }
#define DISCARD(r)  d_step { canDiscard(r) -> leave(r) }
#define PARK(r)     d_step { canPark(r) -> park(r) }
#define UNPARK(r)   d_step { canUnpark(r) -> unpark(r) }

proctype Sweep() {
	SET read;
end:	do
#ifndef V_SWEEP_WITHOUT_LOCK
	:: TAKEBACK(0) :: TAKEBACK(1) :: TAKEBACK(2)
#else
	:: d_step { ofLease(0) != 0 -> over = over | bit(0); read = ofLease(0) };
	   d_step { keyIsFree() -> read = read & running; takeBack(); read = 0 }
#endif
	:: EXPIRE(0) :: EXPIRE(1) :: EXPIRE(2)
	:: DISCARD(0) :: DISCARD(1) :: DISCARD(2)
	:: PARK(0) :: PARK(1) :: PARK(2)
	:: UNPARK(0) :: UNPARK(1) :: UNPARK(2)
#ifdef V_MEND_WITHOUT_LOOKING_AGAIN
	:: d_step { canMend() -> read = named + 1 };
	   d_step { keyIsFree() ->
		if
		:: named == read - 1 -> mend()
		:: else
		fi;
		read = 0
	   }
#else
#ifndef V_NO_MEND
	:: d_step { canMend() -> mend() }
#endif
#endif
#ifdef V_KEY_FREED_BY_A_TIMER
	:: d_step { keyIsFree() && named != NONE && has(running, named) -> advance(); tidy() }
#endif
	od
}

/* Nothing waits for ever: where no step is left, all is settled. That each run gets there
 * is shown by a second search, which finds no cycle of states. */
proctype Rest() {
	timeout;
	d_step {
		key_held_for_ever = named != NONE || !keyIsFree() || (behind & ordered) != 0;
		assert(!key_held_for_ever);
		waits_for_ever = (waiting | behind | scheduled | running | locked[0] | locked[1] | held[0] | held[1]) != 0 || (changed & ~settled) != 0;
		assert(!waits_for_ever)
	}
}

init {
	atomic {
#ifdef V_MEND_WITHOUT_LOOKING_AGAIN
		run Sweep();
#endif
		run Producer0(); run Producer1(); run Worker(0); run Worker(1); run Sweep(); run Rest()
	}
}
