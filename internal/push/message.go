package push

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// notification returns the notification for a device of count events, newest the last of them. actor is the username of its actor.
// A silent notification has no texts.
func notification(newest *StoredEvent, d Device, actor string, count int) Notification {
	n := Notification{
		Event: newest.ID, Type: newest.Type, Actor: newest.Actor, Object: newest.Object, Data: newest.Data,
		Count: count, Collapse: newest.collapseID(), Urgent: newest.Urgent, Expires: newest.Expires,
		Style: newest.Style, Override: newest.Override[d.Platform],
	}
	if n.Silent {
		return n
	}
	text := newest.textIn(d.Language)
	text = Text{cmp.Or(text.Title, actor, newest.Type), cmp.Or(text.Body, newest.Type)}
	number, suffix := strconv.Itoa(count), ""
	if count > 1 && !strings.Contains(text.Title+text.Body+strings.Join(n.TitleLocArgs, "")+strings.Join(n.BodyLocArgs, ""), countPlace) {
		suffix = " (" + number + ")"
	}
	n.Title = fit(strings.ReplaceAll(text.Title, countPlace, number), MaxTitle-len(suffix)) + suffix
	n.Body = fit(strings.ReplaceAll(text.Body, countPlace, number), MaxBody)
	n.TitleLocArgs, n.BodyLocArgs = fill(n.TitleLocArgs, number), fill(n.BodyLocArgs, number)
	return n
}

// countPlace stands for the number of events in a text.
const countPlace = "{count}"

// fill puts the number of events into the arguments of texts.
func fill(args []string, number string) []string {
	args = slices.Clone(args)
	for i, text := range args {
		args[i] = strings.ReplaceAll(text, countPlace, number)
	}
	return args
}

// fit shortens a text to so many bytes as JSON, quotes left out.
func fit(s string, most int) string {
	const dots, longest = "…", 6 // bytes of an escape
	if longest*len(s) <= most || lengthAsJSON(s) <= most {
		return s
	}
	for lengthAsJSON(s)+len(dots) > most {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s + dots
}

// collapseID is the same for the events of a burst, and for an event without a collapse
// key always the same: see [Notification.Collapse].
func (e *StoredEvent) collapseID() string {
	var hash [sha256.Size]byte
	if e.Collapse != "" {
		burst := e.Burst()
		hash = sha256.Sum256(append([]byte("burst\x00"), burst[:]...))
	} else {
		hash = hashOf("event", e.ID)
	}
	return base64.RawURLEncoding.EncodeToString(hash[:24])
}

// messageID returns the id of the message about an event to a device: a UUID of version 8.
func messageID(event, device uint64) string {
	var of [16]byte
	binary.BigEndian.PutUint64(of[:8], event)
	binary.BigEndian.PutUint64(of[8:], device)
	hash := sha256.Sum256(of[:])
	hash[6] = hash[6]&0x0f | 0x80
	hash[8] = hash[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", hash[:4], hash[4:6], hash[6:8], hash[8:10], hash[10:16])
}
