package member

import "slices"

// Copies are the ids that stand for the copies of the broadcast set (package broadcast): the index has a set
// of each, like that of a member whose contacts are the broadcast members. No member of the site may
// have one of them. The key of the i-th set, user_<id>, lies in the i-th sixteenth of the slots of a
// cluster, so that each node has some, and they move with their slots.
//
// They are just below 2^53, and so exact in every program.
var Copies = [16]ID{
	lastCopy - 32, lastCopy, lastCopy - 54, lastCopy - 72, lastCopy - 33, lastCopy - 1, lastCopy - 55, lastCopy - 73,
	lastCopy - 34, lastCopy - 3, lastCopy - 52, lastCopy - 74, lastCopy - 35, lastCopy - 2, lastCopy - 53, lastCopy - 75,
}

const lastCopy ID = 1<<53 - 1

// IsCopy reports whether the id stands for a copy of the broadcast set.
func (id ID) IsCopy() bool {
	return id <= lastCopy && id >= lastCopy-75 && slices.Contains(Copies[:], id)
}
