/*
 * The guard: one viewer's set in Redis, the truth about its contacts in MySQL, and two
 * workers that keep the first like the second. README.md says what is left out and why
 * that is sound, and has the variants.
 *
 * A step is one script of internal/index (beginScript, addScript, applyScript), one
 * statement that reads MySQL, or one transaction of the site. Between steps anything may
 * happen. A set of contacts is a bit mask.
 */

#ifndef MIN
#define MIN      1     /* Settings.Min */
#endif
#ifndef MAX
#define MAX      2     /* Settings.Max */
#endif
#ifndef EVENTS
#define EVENTS   2     /* changes of the truth, and deaths of workers */
#endif
#define LOSSES   1     /* of the set alone, as by its expiry */
#define CONTACTS 4
#define LATEST   10    /* the highest last upload; 0: never uploaded */
#define WORKERS  2
#define NONE     255
#define bit(c)   (1 << (c))
#define has(s, c) (((s) & bit(c)) != 0)

/* MySQL. */
byte contact;             /* who is a contact */
byte last[CONTACTS];      /* last uploads */

/* Redis. */
byte members;             /* of the set; 0: there is none */
byte score[CONTACTS];     /* of a member, else 0 */
byte guard;               /* a token; 0: there is none */

/* The queue: which tasks wait. */
byte uploads, pairs;      /* by contact */
bool refill;

byte events = EVENTS, losses = LOSSES;

/* What a worker has in hand. */
mtype = { Idle, Upload, Pair, Refill };
typedef Worker {
	mtype kind;
	byte about;                        /* the contact */
	byte at;                           /* the step */
	byte token, known, seen[CONTACTS]; /* Begin: the members, later only how many; their scores */
	byte related, read[CONTACTS];      /* what Relations, or LastUploads, returned */
	byte remove, correct, add;         /* what follows from these: contacts */
	bool fill;                         /* with a refill, which TopContacts returned */
	byte top, topScore[CONTACTS];
};
Worker w[WORKERS];

/* The properties' names, for the messages of assert. */
byte contact_is_missing, score_is_too_low, set_is_too_large, set_is_too_small, made_without_a_refill;

/* What a step works with; zero after it. */
byte i, j, n, low;
bool conflict, traced;

inline tidy() {
	i = 0; j = 0; n = 0; low = 0; conflict = false; traced = false
}

#define count(s) (has(s, 0) + has(s, 1) + has(s, 2) + has(s, 3))

/* low = the lowest score of some members, LATEST + 1 of none. */
inline lowest(some) {
	low = LATEST + 1;
	for (j : 0 .. CONTACTS - 1) {
		if
		:: has(some, j) && score[j] < low -> low = score[j]
		:: else
		fi
	}
}

/* Cut the lowest rank beyond MAX: of equal scores that of the lowest id. n counts them. */
inline cut() {
	do
	:: count(members) > MAX ->
		lowest(members);
		for (j : 0 .. CONTACTS - 1) {
			if
			:: has(members, j) && score[j] == low ->
				members = members & ~bit(j); score[j] = 0; low = NONE; n++
			:: else
			fi
		}
	:: else -> break
	od
}

/* adder (Lua): the one way to add. traced is whether the upload left one, and no other's was
 * cut off. */
inline adder(c, s) {
	n = 0;
	traced = false;
	lowest(members);
	if
#ifdef V_ADD_INTO_A_MISSING_SET
	:: members == 0 -> members = bit(c); score[c] = s; traced = true;
		made_without_a_refill = 1; assert(!made_without_a_refill)
#else
	:: members == 0 /* missing */
#endif
#ifdef V_GT_DROPPED
	:: has(members, c) -> score[c] = s; traced = true
#else
	:: has(members, c) && s > score[c] -> score[c] = s; traced = true
	:: has(members, c) && s <= score[c] /* unchanged, below */
#endif
#ifndef V_OUTSIDE_DROPPED
	:: members != 0 && !has(members, c) && count(members) >= MIN && count(members) < MAX && s < low /* outside */
	:: members != 0 && !has(members, c) && !(count(members) >= MIN && count(members) < MAX && s < low) ->
#else
	:: members != 0 && !has(members, c) ->
#endif
		members = members | bit(c);
		score[c] = s;
		cut();
#ifdef V_CUT_KEEPS_GUARD
		traced = true
#else
		traced = n == 0
#endif
	fi
}

/* addScript: an add that leaves no trace ends the update under way. */
inline addScript(c, s) {
	adder(c, s);
	if
#ifndef V_ADD_KEEPS_GUARD
	:: !traced -> guard = 0
#endif
	:: else
	fi
}

/* beginScript: a token that is there is shared. A fresh one is any that no worker has. */
inline beginScript(x) {
	if
	:: guard == 0 ->
		guard = 1;
		do
		:: w[0].token == guard || w[1].token == guard -> guard++
		:: else -> break
		od
	:: else
	fi;
	w[x].token = guard;
	w[x].known = members;
	for (i : 0 .. CONTACTS - 1) { w[x].seen[i] = score[i] }
}

/* What the update is to do: PairHandler.change, mend, PairHandler.wantsRefill. What is not
 * needed any more is forgotten, so that there are fewer states. */
#define isUpdateOf(x, c) (w[x].kind == Refill && has(w[x].known, c) || w[x].kind == Pair && w[x].about == c)
inline decide(x) {
	low = LATEST + 1;
	for (i : 0 .. CONTACTS - 1) {
		if
		:: has(w[x].known, i) && w[x].seen[i] < low -> low = w[x].seen[i]
		:: else
		fi;
		if
		:: isUpdateOf(x, i) && (!has(w[x].related, i) || w[x].read[i] == 0 && has(w[x].known, i)) ->
			w[x].remove = w[x].remove | bit(i)
		:: isUpdateOf(x, i) && has(w[x].related, i) && w[x].read[i] != 0 && w[x].read[i] < w[x].seen[i] ->
			w[x].correct = w[x].correct | bit(i)
		:: isUpdateOf(x, i) && has(w[x].related, i) && w[x].read[i] != 0 && w[x].read[i] >= w[x].seen[i] && w[x].kind == Pair ->
			w[x].add = w[x].add | bit(i)
		:: else
		fi
	}
	n = count(w[x].known & ~w[x].remove);
	w[x].fill = w[x].kind == Refill || w[x].known == 0 || w[x].correct != 0;
#ifndef V_REMOVE_WITHOUT_REFILL
	w[x].fill = w[x].fill || (w[x].known & w[x].remove) != 0 && n < MIN;
#endif
	w[x].fill = w[x].fill || (w[x].add & ~w[x].known) != 0 && w[x].read[w[x].about] < low && n >= MIN && n < MAX;
	for (i : 0 .. CONTACTS - 1) {
		if
		:: !has(w[x].remove | w[x].correct, i) -> w[x].seen[i] = 0
		:: else
		fi;
		if
		:: !has(w[x].correct | w[x].add, i) -> w[x].read[i] = 0
		:: else
		fi
	}
	w[x].related = 0;
	w[x].known = count(w[x].known)
}

/* TopContacts: the MAX most recent contacts that ever uploaded. */
inline topContacts(x) {
	w[x].top = 0;
	for (i : 1 .. MAX) {
		low = 0; n = NONE;
		for (j : 0 .. CONTACTS - 1) {
			if
			:: has(contact & ~w[x].top, j) && last[j] > low -> low = last[j]; n = j
			:: else
			fi
		}
		if
		:: n != NONE -> w[x].top = w[x].top | bit(n); w[x].topScore[n] = last[n]
		:: else
		fi
	}
}

/* applyScript: all of it, or a conflict. */
inline applyScript(x) {
#ifdef V_REFILL_IGNORES_GUARD
	conflict = guard != w[x].token && !(w[x].fill && members == 0);
#else
	conflict = guard != w[x].token;
#endif
#ifdef V_APPLY_IGNORES_TOKEN
	conflict = false;
#endif
#ifdef V_APPLY_TO_A_LOST_SET
	conflict = conflict || members == 0 && !w[x].fill;
#else
	conflict = conflict || members == 0 && (w[x].known != 0 || !w[x].fill);
#endif
	conflict = conflict || members != 0 && w[x].fill && w[x].top == 0 && count(members) > w[x].known;
#ifndef V_REMOVE_WHAT_ROSE
	for (i : 0 .. CONTACTS - 1) {
		conflict = conflict || has(w[x].remove & members, i) && score[i] != w[x].seen[i]
	}
#endif
#ifndef V_REMOVE_WITHOUT_REFILL
	conflict = conflict || !w[x].fill && (w[x].remove & members) != 0 && count(members & ~w[x].remove) < MIN;
#endif
	if
	:: conflict
	:: else ->
		guard = 0;
		if
		:: w[x].fill && w[x].top == 0 -> w[x].remove = w[x].remove | members
		:: else
		fi;
		for (i : 0 .. CONTACTS - 1) {
			if
			:: has(w[x].remove, i) -> members = members & ~bit(i); score[i] = 0
			:: else
			fi;
			if
#ifdef V_CORRECT_WHAT_ROSE
			:: has(w[x].correct & members, i) ->
#else
			:: has(w[x].correct & members, i) && score[i] == w[x].seen[i] ->
#endif
				score[i] = w[x].read[i]
			:: else
			fi;
			if
			:: w[x].fill && has(w[x].top, i) && (!has(members, i) || w[x].topScore[i] > score[i]) ->
				members = members | bit(i); score[i] = w[x].topScore[i]
			:: else
			fi
		}
		cut();
		if
		:: w[x].add != 0 -> adder(w[x].about, w[x].read[w[x].about])
		:: else
		fi
	fi
}

inline forgetReads(x) {
	w[x].token = 0; w[x].known = 0; w[x].related = 0; w[x].top = 0;
	w[x].remove = 0; w[x].correct = 0; w[x].add = 0; w[x].fill = false;
	for (i : 0 .. CONTACTS - 1) { w[x].seen[i] = 0; w[x].read[i] = 0; w[x].topScore[i] = 0 }
}

inline done(x) {
	forgetReads(x);
	w[x].kind = Idle; w[x].about = 0; w[x].at = 0;
	check()
}

/* The task waits again: it was not done, or its end was not recorded. */
inline again(x) {
	if
	:: w[x].kind == Upload -> uploads = uploads | bit(w[x].about)
	:: w[x].kind == Pair -> pairs = pairs | bit(w[x].about)
	:: w[x].kind == Refill -> refill = true
	:: else
	fi;
	done(x)
}

inline take(x, what, c) {
	w[x].kind = what; w[x].about = c; w[x].at = 1;
	tidy()
}

inline readPair(x, c) {
	if
	:: has(contact, c) -> w[x].related = w[x].related | bit(c); w[x].read[c] = last[c]
	:: else
	fi
}

/* ---- What holds ---- */

/* Always the first half of I3; I1, I2 and the rest of I3 when all tasks have been done. */
#define isAtRest() (uploads == 0 && pairs == 0 && !refill && w[0].kind == Idle && w[1].kind == Idle)
inline check() {
	set_is_too_large = count(members) > MAX;
	assert(!set_is_too_large);
	if
	:: isAtRest() && members != 0 ->
		lowest(members);
		for (i : 0 .. CONTACTS - 1) {
			contact_is_missing = contact_is_missing || has(contact & ~members, i) && last[i] > low;
			score_is_too_low = score_is_too_low || has(contact & members, i) && score[i] < last[i];
			set_is_too_small = set_is_too_small || has(contact & ~members, i) && last[i] != 0 && count(members) < MIN
		}
		assert(!contact_is_missing);
		assert(!score_is_too_low);
		assert(!set_is_too_small)
	:: else
	fi;
	tidy()
}

/* ---- The site, workers, and what befalls Redis ---- */

inline upload(c, date) { events--; last[c] = date; uploads = uploads | bit(c); check() }
inline befriend(c)     { events--; contact = contact ^ bit(c); pairs = pairs | bit(c); check() }
/* A member that was deleted, and came back. */
inline lower(c, date)  { events--; last[c] = date; pairs = pairs | bit(c); check() }

#define CHANGES(c) d_step { events > 0 && last[c] < LATEST - 1 -> upload(c, last[c] + 2) } \
	:: d_step { events > 0 && last[c] < LATEST -> upload(c, LATEST) } \
	:: d_step { events > 0 -> befriend(c) } \
	:: d_step { events > 0 && last[c] > 1 -> lower(c, 1) } \
	:: d_step { events > 0 && last[c] > 0 -> lower(c, 0) }
/* A read that meets a ghost reports it. */
#define GHOST(c)   d_step { has(members & ~contact & ~pairs, c) -> pairs = pairs | bit(c) }

proctype Site() {
end:	do
	:: CHANGES(0) :: CHANGES(1) :: CHANGES(2) :: CHANGES(3)
	:: GHOST(0) :: GHOST(1) :: GHOST(2) :: GHOST(3)
	/* A read that finds no set asks for one. */
	:: d_step { members == 0 && !refill -> refill = true }
	:: d_step { guard != 0 -> guard = 0 }
	:: d_step { members != 0 && losses > 0 -> losses--; members = 0; for (i : 0 .. CONTACTS - 1) { score[i] = 0 }; tidy() }
	od
}

#define isIn(x, what, step) (w[x].kind == what && w[x].at == step)
#define isUpdate(x, step)   ((w[x].kind == Pair || w[x].kind == Refill) && w[x].at == step)
#define TAKE(x, c) d_step { w[x].kind == Idle && has(uploads, c) -> uploads = uploads & ~bit(c); take(x, Upload, c) } \
	:: d_step { w[x].kind == Idle && has(pairs, c) -> pairs = pairs & ~bit(c); take(x, Pair, c) }

proctype Work(byte x) {
end:	do
	:: TAKE(x, 0) :: TAKE(x, 1) :: TAKE(x, 2) :: TAKE(x, 3)
	:: d_step { w[x].kind == Idle && refill -> refill = false; take(x, Refill, 0) }
	:: d_step { w[x].kind != Idle && events > 0 -> events--; again(x) } /* it dies */

	/* A fan-out reads the last upload, and the followers, and adds. */
	:: d_step { isIn(x, Upload, 1) -> w[x].read[w[x].about] = last[w[x].about]; w[x].at = 2 }
	:: d_step { isIn(x, Upload, 2) && has(contact, w[x].about) -> w[x].at = 3 }
	:: d_step { isIn(x, Upload, 2) && !has(contact, w[x].about) -> done(x) }
	:: d_step { isIn(x, Upload, 3) ->
		if
		:: w[x].read[w[x].about] != 0 ->
			addScript(w[x].about, w[x].read[w[x].about])
		:: else
		fi;
		done(x)
	   }

	/* A guarded update: begin, read, read what fills the set, apply; or again. */
	:: d_step { isUpdate(x, 1) -> beginScript(x); w[x].at = 2; tidy() }
	:: d_step { isUpdate(x, 2) ->
		for (i : 0 .. CONTACTS - 1) {
			if
			:: isUpdateOf(x, i) -> readPair(x, i)
			:: else
			fi
		}
		decide(x);
		w[x].at = (w[x].fill -> 3 : 4);
		tidy()
	   }
	:: d_step { isUpdate(x, 3) -> topContacts(x); w[x].at = 4; tidy() }
	:: d_step { isUpdate(x, 4) ->
		applyScript(x);
		if
		:: conflict -> forgetReads(x); w[x].at = 1; tidy()
		:: else -> done(x)
		fi
	   }
	od
}

/* The set is what a refill makes of it; or one upload has been hidden since, without a task,
 * and a refill waits. (No loss then, as there would be many more states.) */
init {
	atomic {
		d_step {
			w[0].kind = Idle; w[1].kind = Idle;
			contact = bit(CONTACTS) - 1;
			last[0] = 8; last[1] = 4; last[2] = 5; last[3] = 1;
			topContacts(0);
			members = w[0].top;
			for (i : 0 .. CONTACTS - 1) { score[i] = w[0].topScore[i] }
			forgetReads(0);
			check()
		}
		if
		:: last[0] = 1; refill = true; losses = 0
		:: true
		fi;
		run Site(); run Work(0); run Work(1)
	}
}
