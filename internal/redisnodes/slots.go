package redisnodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// SlotCount is how many slots the keys of a cluster are divided into.
const SlotCount = 16384

// SlotOf is the slot of a key: the CRC-16 (XMODEM) of the part of its name between the
// first braces, or of all of it where there are none with something in between. See the
// Redis Cluster Specification, "Hash tags".
func SlotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return int(crc % SlotCount)
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// slotKeys returns a key of each slot: the smallest number in braces that lies in it.
var slotKeys = sync.OnceValue(func() *[SlotCount]string {
	var keys [SlotCount]string
	for n, found := 0, 0; found < SlotCount; n++ {
		key := "{" + strconv.Itoa(n) + "}"
		if slot := SlotOf(key); keys[slot] == "" {
			keys[slot] = key
			found++
		}
	}
	return &keys
})

// Slots is a set of slots of a cluster. Its text is that of CLUSTER ADDSLOTSRANGE with
// other separators, as in "0-5460,9000". The zero value is the empty set.
type Slots struct {
	ranges []slotRange // in order, and disjoint
}

// slotRange is the slots from first to last.
type slotRange struct{ first, last int }

// slotsOf returns the set of some slots, in any order.
func slotsOf(list []int) Slots {
	list = slices.Clone(list)
	slices.Sort(list)
	var s Slots
	for _, slot := range list {
		if n := len(s.ranges); n > 0 && slot <= s.ranges[n-1].last+1 {
			s.ranges[n-1].last = slot
		} else {
			s.ranges = append(s.ranges, slotRange{slot, slot})
		}
	}
	return s
}

// SlotsOfKeys returns the slots in which keys lie.
func SlotsOfKeys(keys ...string) Slots {
	list := make([]int, len(keys))
	for i, key := range keys {
		list[i] = SlotOf(key)
	}
	return slotsOf(list)
}

// maxRanges bounds the text of what [Nodes.SlotsOut] returns to a few kilobytes.
const maxRanges = 1000

// SlotsOut returns the slots that cannot be used, judging by the errors of some keys: the slot of
// the key if the error is about one slot, otherwise all slots of its node. So keys of one node
// usually have the same result. It returns all slots if the result would be too scattered to be
// written down.
func (ns *Nodes) SlotsOut(ctx context.Context, failed map[string]error) Slots {
	nodes := make(map[*Node]bool)
	var list []int
	for key, err := range failed {
		list = append(list, SlotOf(key))
		if n, err2 := ns.Of(ctx, key); err2 == nil && !IsOfSlot(err) {
			nodes[n] = true
		}
	}
	if ns.single != nil && len(nodes) > 0 {
		return AllSlots()
	}
	for n := range nodes {
		ns.tags(ctx, n) // lays them out again if the node has none, as after a failover
	}
	if len(nodes) > 0 {
		for slot, n := range ns.laid(ctx).slots[:] {
			if nodes[n] {
				list = append(list, slot)
			}
		}
	}
	if s := slotsOf(list); len(s.ranges) <= maxRanges {
		return s
	}
	return AllSlots()
}

// AllSlots returns the set of all slots.
func AllSlots() Slots { return Slots{[]slotRange{{0, SlotCount - 1}}} }

// IsAll reports whether s is the set of all slots.
func (s Slots) IsAll() bool { return s.Len() == SlotCount }

// Union returns the slots that are in s or in t.
func (s Slots) Union(t Slots) Slots {
	switch {
	case s.IsEmpty() || t.IsAll():
		return t
	case t.IsEmpty() || s.IsAll():
		return s
	}
	return slotsOf(append(s.list(), t.list()...))
}

// Without returns the slots of s that are not in t.
func (s Slots) Without(t Slots) Slots {
	return slotsOf(slices.DeleteFunc(s.list(), t.has))
}

// list returns the slots one by one, in order.
func (s Slots) list() []int {
	list := make([]int, 0, s.Len())
	for _, r := range s.ranges {
		for slot := r.first; slot <= r.last; slot++ {
			list = append(list, slot)
		}
	}
	return list
}

// IsEmpty reports whether there is no slot.
func (s Slots) IsEmpty() bool { return len(s.ranges) == 0 }

// Len is how many slots there are.
func (s Slots) Len() (n int) {
	for _, r := range s.ranges {
		n += r.last - r.first + 1
	}
	return n
}

// Has reports whether key lies in one of the slots.
func (s Slots) Has(key string) bool { return s.has(SlotOf(key)) }

func (s Slots) has(slot int) bool {
	_, found := slices.BinarySearchFunc(s.ranges, slot, func(r slotRange, slot int) int {
		switch {
		case r.last < slot:
			return -1
		case r.first > slot:
			return 1
		}
		return 0
	})
	return found
}

// String returns the text of the set.
func (s Slots) String() string {
	var text []string
	for _, r := range s.ranges {
		if r.first == r.last {
			text = append(text, strconv.Itoa(r.first))
		} else {
			text = append(text, fmt.Sprintf("%d-%d", r.first, r.last))
		}
	}
	return strings.Join(text, ",")
}

// MarshalText implements [encoding.TextMarshaler].
func (s Slots) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Slots) UnmarshalText(text []byte) error {
	s.ranges = nil
	for part := range strings.SplitSeq(string(text), ",") {
		if part == "" && len(text) == 0 {
			break
		}
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if cmp.Or(err, err2) != nil || first < 0 || last < first || last >= SlotCount {
			return fmt.Errorf("slots %q: want numbers and ranges from 0 to %d, as in 0-5460,9000", text, SlotCount-1)
		}
		if n := len(s.ranges); n > 0 && first <= s.ranges[n-1].last {
			return fmt.Errorf("slots %q: want them in order", text)
		}
		s.ranges = append(s.ranges, slotRange{first, last})
	}
	return nil
}

// tagCount is how many keys of a kind a cluster has, in slots that are evenly spread: a
// node with 128 slots or more in a row has some of them.
const tagCount = 128

// layout says which slots of a cluster are on which nodes, at a time.
type layout struct {
	at    time.Time
	slots [SlotCount]*Node // nil: it is not known
	tags  map[*Node][]string
}

// layoutFor is how long a layout is used.
const layoutFor = time.Second

// tags returns what ends the keys that lie on the node beside its data, in the order of
// their slots: "" for one server. A node with so few slots that none of the tags of the
// cluster lies in them has one for its first slot. A node without slots has none.
func (ns *Nodes) tags(ctx context.Context, n *Node) []string {
	if ns.single != nil {
		return []string{""}
	}
	l := ns.laid(ctx)
	if l.tags[n] == nil {
		l = ns.lay(ctx)
	}
	return l.tags[n]
}

// laid returns a layout that is not old.
func (ns *Nodes) laid(ctx context.Context) *layout {
	if l := ns.layout.Load(); l != nil && ns.now().Sub(l.at) <= layoutFor {
		return l
	}
	return ns.lay(ctx)
}

// lay makes a layout.
func (ns *Nodes) lay(ctx context.Context) *layout {
	l := &layout{at: ns.now(), tags: make(map[*Node][]string)}
	first := make(map[*Node]string)
	for slot, key := range slotKeys() {
		n, err := ns.Of(ctx, key)
		if err != nil {
			continue
		}
		l.slots[slot] = n
		switch {
		case slot%(SlotCount/tagCount) == 0:
			l.tags[n] = append(l.tags[n], key)
		case first[n] == "":
			first[n] = key
		}
	}
	for n, key := range first {
		if len(l.tags[n]) == 0 {
			l.tags[n] = []string{key}
		}
	}
	ns.layout.Store(l)
	return l
}

// allTags returns the tags of all nodes.
func (ns *Nodes) allTags() []string {
	if ns.single != nil {
		return []string{""}
	}
	tags := make([]string, tagCount)
	for i := range tags {
		tags[i] = slotKeys()[i*SlotCount/tagCount]
	}
	return tags
}
