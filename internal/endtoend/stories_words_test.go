package endtoend_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// telling is a story while it is told.
type telling struct {
	*testing.T
	*stage

	names  []string          // of the members, whose ids count from 1
	photos map[string]uint64 // by title
}

// sentence is a form of lines, with its action. Its words are the groups of the form.
type sentence struct {
	form *regexp.Regexp
	do   func(s *telling, words []string) error
}

// question is a form of questions, with a function that returns the lines of the answer.
type question struct {
	form   *regexp.Regexp
	answer func(s *telling, words []string) ([]string, error)
}

func form(text string) *regexp.Regexp { return regexp.MustCompile("^" + text + "$") }

// sentences are all that a story may say. The README of the stories lists them.
var sentences = []sentence{
	{form(`sets hold (\d+)`), func(*telling, []string) error { return nil }}, // see tell
	{form(`members are (.+)`), (*telling).join},
	{form(`(\w+) calls (.+?) (a contact|contacts|a friend|friends|family)`), (*telling).call},
	{form(`(\w+) removes (\w+)`), func(s *telling, w []string) error {
		return s.site.RemoveContact(s.Context(), s.id(w[0]), s.id(w[1]))
	}},
	{form(`(\w+) blocks (\w+)`), func(s *telling, w []string) error {
		return s.site.Block(s.Context(), s.id(w[0]), s.id(w[1]))
	}},
	{form(`(\w+) unblocks (\w+)`), func(s *telling, w []string) error {
		return s.site.Unblock(s.Context(), s.id(w[0]), s.id(w[1]))
	}},
	{form(`(\w+) leaves the site`), func(s *telling, w []string) error {
		return s.site.DeleteMember(s.Context(), s.id(w[0]))
	}},
	{form(`(\w+) uploads "(.+)" \((\w+)\)(, and notifies)?`), (*telling).upload},
	{form(`(\w+) makes "(.+)" (\w+)`), func(s *telling, w []string) error {
		return s.site.SetVisibility(s.Context(), s.photo(w[1]), s.class(w[2]))
	}},
	{form(`(\w+) deletes "(.+)"`), func(s *telling, w []string) error {
		return s.site.DeletePhoto(s.Context(), s.photo(w[1]))
	}},
	{form(`(\w+) has a phone`), func(s *telling, w []string) error {
		_, err := s.push.Register(s.Context(), s.id(w[0]), apns.Platform, apns.NewAddress(fmt.Sprintf("%064x", s.id(w[0])), false), "")
		return err
	}},
	{form(`the sets are built`), (*telling).build},
	{form(`the workers work`), func(s *telling, _ []string) error {
		s.work(s.T)
		return nil
	}},
	{form(`a worker takes the tasks and dies`), func(s *telling, _ []string) error {
		for _, w := range tasks.DefaultWorkers() {
			if _, err := s.queue.Claim(s.Context(), w.Queue, 100, time.Second); err != nil {
				return err
			}
		}
		return nil
	}},
	{form(`Redis is emptied`), func(s *telling, _ []string) error {
		s.empty()
		return nil
	}},
}

// questions are all that a story may ask.
var questions = []question{
	{form(`what does (\w+) see`), func(s *telling, w []string) ([]string, error) { return s.see(w[0], 10) }},
	{form(`what does (\w+) see, at most (\d+) photos`), func(s *telling, w []string) ([]string, error) {
		limit, err := strconv.Atoi(w[1])
		must(s.T, err)
		return s.see(w[0], limit)
	}},
	{form(`what does the set of (\w+) hold`), (*telling).set},
	{form(`which tasks are there`), (*telling).tasks},
	{form(`what arrives at the phone of (\w+)`), func(s *telling, w []string) ([]string, error) {
		return s.phones.look(s.id(w[0])), nil
	}},
}

// tell plays a story, and returns it with the answers that it gave.
func tell(t *testing.T, newStage func(*testing.T, index.Settings) *stage, text string) string {
	t.Helper()
	need := 10
	if set := regexp.MustCompile(`(?m)^sets hold (\d+)$`).FindStringSubmatch(text); set != nil {
		var err error
		need, err = strconv.Atoi(set[1])
		must(t, err)
	}
	settings, err := index.NewSettings(need, 0, 0)
	must(t, err)
	s := &telling{T: t, stage: newStage(t, settings), photos: make(map[string]uint64)}
	_, _, begun := strings.Cut(text, "\n-- ")
	if !begun {
		t.Fatal("there is no line -- site --")
	}
	var told []string
	isTold := false
	for i, line := range strings.Split(text, "\n") {
		isAnswer := strings.HasPrefix(line, "  ")
		if !isAnswer {
			told = append(told, line)
		}
		switch asked, isQuestion := strings.CutPrefix(line, "? "); {
		case strings.HasPrefix(line, "-- "):
			isTold = true
		case !isTold || isAnswer || line == "" || strings.HasPrefix(line, "#"):
		case isQuestion:
			told = append(told, s.answer(i+1, asked)...)
		default:
			s.say(i+1, line)
		}
	}
	return strings.Join(told, "\n")
}

// say executes a line.
func (s *telling) say(number int, line string) {
	s.Helper()
	for _, one := range sentences {
		if words := one.form.FindStringSubmatch(line); words != nil {
			if err := one.do(s, words[1:]); err != nil {
				s.Fatalf("line %d: %s: %v", number, line, err)
			}
			return
		}
	}
	s.Fatalf("line %d: %s: there is no such sentence", number, line)
}

// answer returns the lines that answer a question.
func (s *telling) answer(number int, asked string) []string {
	s.Helper()
	for _, one := range questions {
		words := one.form.FindStringSubmatch(asked)
		if words == nil {
			continue
		}
		lines, err := one.answer(s, words[1:])
		if err != nil {
			s.Fatalf("line %d: %s: %v", number, asked, err)
		}
		if len(lines) == 0 {
			lines = []string{"nothing"}
		}
		for i := range lines {
			lines[i] = "  " + lines[i]
		}
		return lines
	}
	s.Fatalf("line %d: %s: there is no such question", number, asked)
	return nil
}

func (s *telling) id(name string) member.ID {
	s.Helper()
	at := slices.Index(s.names, name)
	if at < 0 {
		s.Fatalf("%s is no member", name)
	}
	return member.ID(at + 1)
}

func (s *telling) name(id member.ID) string { return s.names[id-1] }

func (s *telling) photo(title string) uint64 {
	s.Helper()
	id, is := s.photos[title]
	if !is {
		s.Fatalf("there is no photo %q", title)
	}
	return id
}

func (s *telling) class(word string) contacts.Visibility {
	s.Helper()
	v := contacts.Visibility(word)
	if !slices.Contains(contacts.Classes(), v) {
		s.Fatalf("there is no visibility %q", word)
	}
	return v
}

var listed = regexp.MustCompile(`, | and `)

func (s *telling) join(words []string) error {
	for _, name := range listed.Split(words[0], -1) {
		s.names = append(s.names, name)
		if err := s.site.AddMember(s.Context(), s.id(name), name); err != nil {
			return err
		}
	}
	return nil
}

func (s *telling) call(words []string) error {
	grant := site.Grant{Friend: strings.Contains(words[2], "friend"), Family: words[2] == "family"}
	for _, name := range listed.Split(words[1], -1) {
		if err := s.site.SetContact(s.Context(), s.id(words[0]), s.id(name), grant); err != nil {
			return err
		}
	}
	return nil
}

// upload uploads a photo a minute after the last.
func (s *telling) upload(words []string) error {
	id := uint64(len(s.photos) + 1)
	s.photos[words[1]] = id
	p := site.Photo{ID: id, Owner: s.id(words[0]), Title: words[1], Visibility: s.class(words[2]), DateUpload: 1363665432 + 60*id}
	if words[3] != "" {
		event, err := json.Marshal(map[string]string{"type": "upload", "object": fmt.Sprintf("photo:%d", id), "body": "uploaded " + words[1]})
		must(s.T, err)
		p.Notify = string(event)
	}
	_, err := s.site.Upload(s.Context(), p)
	return err
}

// build builds the sets as activityd backfill does.
func (s *telling) build([]string) error {
	s.work(s.T)
	var refills []queue.New
	for i := range s.names {
		refills = append(refills, tasks.NewRefill(member.ID(i+1)))
	}
	_, err := s.queue.Enqueue(s.Context(), refills)
	if err == nil {
		s.work(s.T)
	}
	return err
}

// see returns the photos that a member sees, and their source.
func (s *telling) see(name string, limit int) ([]string, error) {
	a, err := s.reader.Read(s.Context(), contacts.Viewer{ID: s.id(name)}, limit)
	shown := "nothing"
	if a.Contact != nil {
		var titles []string
		for _, p := range a.Photos {
			titles = append(titles, p.Title)
		}
		shown = a.Contact.Username + ": " + strings.Join(titles, ", ")
	}
	return []string{shown, "found by the " + string(a.Source)}, err
}

// set returns the members of a set, the highest score first.
func (s *telling) set(words []string) ([]string, error) {
	entries, err := s.index.Candidates(s.Context(), s.id(words[0]))
	if errors.Is(err, index.ErrMissing) {
		return []string{"there is no set"}, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, s.name(e.Contact))
	}
	return []string{strings.Join(names, ", ")}, err
}

// tasks returns the tasks that are not done.
func (s *telling) tasks([]string) (lines []string, err error) {
	list, err := s.queue.List(s.Context(), queue.Filter{}, 100)
	for _, r := range list {
		about := ""
		var args tasks.ContactArgs
		if json.Unmarshal(r.Payload, &args) == nil && args.Contact != 0 {
			about = ", " + s.name(args.Contact)
		}
		lines = append(lines, fmt.Sprintf("%s of %s%s: %s", r.Kind, s.name(member.ID(r.Key)), about, r.State))
	}
	slices.Sort(lines)
	return lines, err
}
