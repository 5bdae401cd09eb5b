package world

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/activityd/activityd/internal/demo/pictures"
)

// Spec says how large a world is, and of which words it is made.
type Spec struct {
	Seed    uint64 `json:"seed"`
	Members int    `json:"members"`
	// Featured holds how many contacts each of the members 1, 2, 3… has: the
	// viewers that the demo offers.
	Featured []int `json:"featured"`
	// Celebrities holds how many followers the members right after those have,
	// at least.
	Celebrities []int `json:"celebrities"`
	// MostContacts caps the contacts of everybody else.
	MostContacts int       `json:"most_contacts"`
	Photos       int       `json:"photos"`
	Blocks       int       `json:"blocks"`
	Usernames    Usernames `json:"usernames"`
	Titles       Titles    `json:"titles"`
}

// Usernames are put together from a first and a second word.
type Usernames struct {
	First  []string `json:"first"`
	Second []string `json:"second"`
}

// Titles are put together from a word for the light and one for the scene that
// the picture shows.
type Titles struct {
	Light    map[string][]string `json:"light"`
	Scene    map[string][]string `json:"scene"`
	JoinedBy []string            `json:"joined_by"`
}

// ErrSpec is wrapped by every error of [Parse].
var ErrSpec = errors.New("bad description of the demo's world")

// Parse reads a Spec from JSON and checks it. Its errors wrap [ErrSpec] and
// name the field.
func Parse(data []byte) (Spec, error) {
	var s Spec
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Spec{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	if err := errors.Join(s.checkSizes(), s.Usernames.check(), s.Titles.check()); err != nil {
		return Spec{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return s, nil
}

func (s Spec) checkSizes() error {
	if named := len(s.Featured) + len(s.Celebrities); s.Members <= named {
		return fmt.Errorf("members: %d, want more than the %d featured and celebrities", s.Members, named)
	}
	for _, f := range []struct {
		name  string
		sizes []int
	}{{"featured", s.Featured}, {"celebrities", s.Celebrities}} {
		for i, n := range f.sizes {
			if n < 0 || n >= s.Members {
				return fmt.Errorf("%s[%d]: %d, want 0 to %d, as there are %d members", f.name, i, n, s.Members-1, s.Members)
			}
		}
	}
	if s.MostContacts < 0 || s.Photos < 0 || s.Blocks < 0 {
		return errors.New("most_contacts, photos and blocks: want 0 or more")
	}
	return nil
}

func (u Usernames) check() error {
	if len(u.First) == 0 || len(u.Second) == 0 {
		return errors.New("usernames: want at least one first and one second word")
	}
	return nil
}

func (t Titles) check() error {
	if len(t.JoinedBy) == 0 {
		return errors.New("titles.joined_by: want at least one word")
	}
	return errors.Join(
		checkWords("titles.light", t.Light, pictures.Lights()),
		checkWords("titles.scene", t.Scene, pictures.Scenes()))
}

func checkWords(field string, words map[string][]string, wanted []string) error {
	for _, name := range wanted {
		if len(words[name]) == 0 {
			return fmt.Errorf("%s.%s: want at least one word", field, name)
		}
	}
	return nil
}
