package push

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

var (
	wantImage    = fmt.Sprintf("an https URL of at most %d visible ASCII characters", MaxImage)
	wantTexts    = fmt.Sprintf("1 to %d languages, as in {\"de\":{\"title\":\"…\",\"body\":\"…\"}}", MaxLanguages)
	wantLanguage = fmt.Sprintf("a language tag of at most %d characters, as in de or pt-BR", MaxLanguage)
)

// forPeople are the fields that a silent event must not have.
var forPeople = []string{"title", "body", "texts", "sound", "image", "title_loc_key", "title_loc_args", "body_loc_key", "body_loc_args"}

// readStyle reads the style of an event, its texts by language, and the platforms' objects.
func (e *Event) readStyle(o reader) {
	if n, ok := o.Whole("badge", 0, MaxBadge); ok {
		e.Badge = new(int(n))
	}
	e.Sound, e.Image = o.name("sound", MaxName), o.name("image", MaxImage)
	if u, err := url.Parse(e.Image); e.Image != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
		o.Addf("image", "%q: want %s", strictjson.Clip(e.Image), wantImage)
	}
	e.TitleLocKey, e.TitleLocArgs = o.name("title_loc_key", MaxName), o.args("title_loc_args", "title_loc_key")
	e.BodyLocKey, e.BodyLocArgs = o.name("body_loc_key", MaxName), o.args("body_loc_args", "body_loc_key")
	if texts, given := o.Get("texts"); given {
		e.readTexts(o.Reader, o.Reader.At(o.Place, "texts"), texts)
	}
	if e.Silent, _ = o.Bool("silent"); e.Silent {
		for _, name := range forPeople {
			if _, given := o.Get(name); given {
				o.Addf(name, "is for people, and a silent event shows nothing: leave it out")
			}
		}
	}
	for _, p := range overridable {
		if own := o.object(string(p), MaxContent); own != nil {
			e.override(p, own)
		}
	}
}

func (e *Event) override(p Platform, own json.RawMessage) {
	if e.Override == nil {
		e.Override = make(map[Platform]json.RawMessage)
	}
	e.Override[p] = own
}

// args reads the texts that are put into the text of a key.
func (o reader) args(name, key string) (list []string) {
	value, given := o.Get(name)
	if !given {
		return nil
	}
	if _, given := o.Get(key); !given {
		o.Addf(name, "are for no key: give %s, or leave them out", key)
	}
	place := o.Reader.At(o.Place, name)
	items, _ := o.Reader.Array(place, value, "texts", 1, MaxLocArgs)
	for i, item := range items {
		switch {
		case item[0] != '"':
			o.Reader.Addf(strictjson.Item(place, i), "want a text, got %s", strictjson.TypeName(item))
			continue
		case lengthAsJSON(unquoted(item)) > MaxLocArg:
			o.Reader.Addf(strictjson.Item(place, i), "want at most %d bytes as JSON", MaxLocArg)
		}
		list = append(list, unquoted(item))
	}
	return list
}

// readTexts reads the texts by language. The languages are in lower case then.
func (e *Event) readTexts(r *strictjson.Reader, place string, value json.RawMessage) {
	texts, ok := r.Object(place, value)
	if !ok {
		return
	}
	e.Texts = make(map[string]Text)
	for language, value := range texts.All() {
		t, ok := r.Object(r.At(place, language), value)
		if !ok {
			continue
		}
		t.Only("title", "body")
		said := Text{reader{t}.text("title", MaxTitle), reader{t}.text("body", MaxBody)}
		lower := strings.ToLower(language)
		_, twice := e.Texts[lower]
		switch err := CheckLanguage(language); {
		case err != nil:
			t.Addf("", "%v", err)
		case twice:
			t.Addf("", "is there in another spelling, too")
		case said == Text{}:
			t.Addf("", "has neither title nor body")
		}
		e.Texts[lower] = said
	}
	if n := len(e.Texts); n == 0 || n > MaxLanguages {
		r.Addf(place, "holds %d: want %s", n, wantTexts)
	}
}

// checkSize adds a fault if the message to a platform, or the payload of the event's task, might be too long. Without texts by
// language, objects and images an event fits in any case.
func (e *Event) checkSize(o reader) {
	if len(o.Reader.Faults) > 0 || e.Texts == nil && e.Override == nil && e.Image == "" && e.TitleLocArgs == nil && e.BodyLocArgs == nil {
		return
	}
	for _, p := range append([]Platform{""}, overridable...) {
		n := sizeAsJSON(struct {
			Text
			Style
			Data json.RawMessage `json:"data,omitempty"`
			Own  json.RawMessage `json:"own,omitempty"`
		}{e.longestText(), e.Style, e.Data, e.Override[p]})
		if n > MaxContent {
			o.Addf(string(p), "makes a message too long: the longest texts, data, style and the object of a platform may have %d bytes as JSON together, not %d",
				MaxContent, n)
			return
		}
	}
	if n := sizeAsJSON(e); n > queue.MaxPayload-eventRoom {
		o.Addf("recipients", "are too many for an event with so many texts: it may have %d bytes as JSON, not %d: send it to fewer at a time",
			queue.MaxPayload-eventRoom, n)
	}
}

// sizeAsJSON is the size of JSON as a database writes it, with a space after each comma and colon.
func sizeAsJSON(value any) int {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("push: an event cannot be marshalled: %v", err)) // it was read from JSON
	}
	return len(raw) + bytes.Count(raw, []byte(",")) + bytes.Count(raw, []byte(":"))
}

// longestText returns the longest text of all languages. A title that is not said may become a username.
func (e *Event) longestText() (longest Text) {
	if e.Silent {
		return longest
	}
	for language := range e.Texts {
		if t := e.textIn(language); sizeAsJSON(t) > sizeAsJSON(longest) {
			longest = t
		}
	}
	own := Text{cmp.Or(e.Title, strings.Repeat("x", MaxTitle)), cmp.Or(e.Body, e.Type)}
	if sizeAsJSON(own) > sizeAsJSON(longest) {
		return own
	}
	return longest
}

// textIn returns the text for a device of a language, by RFC 4647, 3.4: for de-CH-1996, the text in Texts of that tag, of
// de-CH or of de, else the event's own.
func (e *Event) textIn(language string) Text {
	language = strings.ToLower(language)
	for language != "" && len(e.Texts) > 0 {
		if t, found := e.Texts[language]; found {
			return Text{cmp.Or(t.Title, e.Title), cmp.Or(t.Body, e.Body)}
		}
		language = language[:max(0, strings.LastIndexByte(language, '-'))]
		if n := len(language); n > 2 && language[n-2] == '-' { // the letter that begins an extension goes with it
			language = language[:n-2]
		}
	}
	return Text{e.Title, e.Body}
}

var languageSyntax = regexp.MustCompile(`^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$`)

// CheckLanguage returns an error, for people, unless the tag has the form of a language's (BCP 47).
func CheckLanguage(tag string) error {
	if !matches(tag, MaxLanguage, languageSyntax) {
		return fmt.Errorf("%q: want %s", strictjson.Clip(tag), wantLanguage)
	}
	return nil
}

// Merge returns a JSON value with a patch (RFC 7386): a value of the patch replaces the value of its name, null
// deletes it, and objects are merged. Both are valid compact JSON. A nil patch changes nothing.
func Merge(target, patch json.RawMessage) (json.RawMessage, error) {
	if patch == nil {
		return target, nil
	}
	if patch[0] != '{' {
		return patch, nil
	}
	have, with := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if len(target) > 0 && target[0] == '{' {
		if err := json.Unmarshal(target, &have); err != nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(patch, &with); err != nil {
		return nil, err
	}
	for name, value := range with {
		if string(value) == "null" {
			delete(have, name)
			continue
		}
		merged, err := Merge(have[name], value)
		if err != nil {
			return nil, err
		}
		have[name] = merged
	}
	return Encode(have, nil)
}

// Encode returns the compact JSON of a value, merged with an event's own object for the platform. It escapes nothing for HTML: an
// escape has six bytes.
func Encode(value any, own json.RawMessage) (json.RawMessage, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return Merge(bytes.TrimSuffix(out.Bytes(), []byte("\n")), own)
}
