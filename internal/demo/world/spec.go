package world

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// Parse reads a Spec from JSON. The only one is a part of the program, and is checked
// by its tests.
func Parse(data []byte) (Spec, error) {
	var s Spec
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Spec{}, fmt.Errorf("description of the demo's world: %w", err)
	}
	return s, nil
}
