package push

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// notification returns what a device shows for count events, of which newest is the last.
// actor is the username of its actor. A silent one has no texts.
func notification(newest *StoredEvent, d Device, actor string, count int) Notification {
	text := Text{newest.Title, newest.Body}
	if language := newest.lookup(d.Language); language != "" {
		text = newest.textIn(language)
	}
	n := Notification{
		Event: newest.ID, Type: newest.Type, Actor: newest.Actor, Object: newest.Object,
		Title: cmp.Or(text.Title, actor, newest.Type), Body: cmp.Or(text.Body, newest.Type), Data: newest.Data,
		Count: count, Collapse: newest.collapseID(), Urgent: newest.Urgent, Expires: newest.Expires,
		Style: newest.Style, Override: newest.Override[d.Platform],
	}
	if n.Silent {
		n.Title, n.Body = "", ""
		return n
	}
	number := strconv.Itoa(count)
	suffix := ""
	if count > 1 && !strings.Contains(n.Title+n.Body+strings.Join(n.TitleLocArgs, "")+strings.Join(n.BodyLocArgs, ""), countPlace) {
		suffix = " (" + number + ")"
	}
	n.Title = fit(strings.ReplaceAll(n.Title, countPlace, number), MaxTitle-len(suffix)) + suffix
	n.Body = fit(strings.ReplaceAll(n.Body, countPlace, number), MaxBody)
	n.TitleLocArgs, n.BodyLocArgs = fill(n.TitleLocArgs, number), fill(n.BodyLocArgs, number)
	return n
}

// Message returns the message about an event alone to a device, as a delivery sends it. actor is the username of
// its actor.
func (e *StoredEvent) Message(d Device, actor string) Message {
	return Message{ID: messageID(e.Number, d.ID), Device: d, Notification: notification(e, d, actor, 1)}
}

// fit shortens a text to so many bytes as JSON, quotes left out.
func fit(s string, most int) string {
	if len(s)*maxEscape <= most {
		return s
	}
	const dots = "…"
	used, room := 0, 0 // room is where the dots still fit
	for i := 0; i < len(s); {
		if used <= most-len(dots) {
			room = i
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case strings.ContainsRune("\"\\\b\f\n\r\t", r):
			used += len(`\n`)
		case r < ' ', strings.ContainsRune("<>&\u2028\u2029", r), r == utf8.RuneError && size == 1:
			used += maxEscape
		default:
			used += size
		}
		if used > most {
			return s[:room] + dots
		}
		i += size
	}
	return s
}

// maxEscape is how many bytes of JSON a byte of text has at most.
const maxEscape = len(`\u0000`)

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
	var text [36]byte
	hex.Encode(text[:8], hash[:4])
	hex.Encode(text[9:13], hash[4:6])
	hex.Encode(text[14:18], hash[6:8])
	hex.Encode(text[19:23], hash[8:10])
	hex.Encode(text[24:], hash[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
