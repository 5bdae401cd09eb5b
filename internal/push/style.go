package push

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// Style is how a notification is shown, beside its texts. Each platform has its own form of it.
type Style struct {
	Badge    *int     `json:"badge,omitempty"` // the number at the app's icon, 0 takes it away; nil: it stays
	Sound    string   `json:"sound,omitempty"` // a sound of the app, [SoundDefault] or [SoundNone]; "": as the platform does
	Silent   bool     `json:"silent,omitempty"`
	Image    string   `json:"image,omitempty"`    // an https URL
	Category string   `json:"category,omitempty"` // which buttons the app has for it, or what it opens
	Actions  []Action `json:"actions,omitempty"`  // buttons
	// The keys of texts that the app has, and what is put into them.
	TitleLocKey  string   `json:"title_loc_key,omitempty"`
	TitleLocArgs []string `json:"title_loc_args,omitempty"`
	BodyLocKey   string   `json:"body_loc_key,omitempty"`
	BodyLocArgs  []string `json:"body_loc_args,omitempty"`
}

// The sounds that are no file of the app.
const (
	SoundDefault = "default"
	SoundNone    = "none"
)

// Action is a button of a notification.
type Action struct {
	Action string `json:"action"`
	Title  string `json:"title"`
	URL    string `json:"url,omitempty"` // what a browser opens
}

// Text is what an event says in one language. What is "" is said as in the event itself.
type Text struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
}

// Bounds of what an event may have beside its texts.
const (
	MaxBadge       = 99999
	MaxSound       = 64  // bytes: visible ASCII
	MaxImage       = 500 // bytes: visible ASCII
	MaxCategory    = 64  // bytes: visible ASCII
	MaxActions     = 3
	MaxAction      = 32  // bytes of [Action.Action]: visible ASCII
	MaxActionTitle = 60  // bytes
	MaxActionURL   = 250 // bytes: visible ASCII
	MaxLocKey      = 64  // bytes: visible ASCII
	MaxLocArgs     = 8
	MaxLocArg      = 100 // bytes
	MaxLanguages   = 30  // of texts
	MaxLanguage    = 35  // bytes of a language tag (RFC 5646, 4.4.1)
	// MaxContent bounds what an event makes a message to one platform longer by: texts, data, style, and
	// what is merged into that platform's messages, with their names, as compact JSON. Of a title, a body
	// and data as long as they may be it leaves room for 520 bytes more. What else is in a message is
	// less than 650 bytes; the smallest limit is that of Web Push, 3,993.
	MaxContent = 3300
	// eventRoom is what activityd itself may add to an event in the payload of its task: an id, and its
	// age.
	eventRoom = 256
)

var (
	wantSound       = fmt.Sprintf("the name of a sound: 1 to %d visible ASCII characters without quotes and backslashes", MaxSound)
	wantImage       = fmt.Sprintf("an https URL of at most %d visible ASCII characters", MaxImage)
	wantName        = fmt.Sprintf("1 to %d visible ASCII characters without quotes and backslashes", MaxCategory) // or MaxLocKey
	wantActions     = fmt.Sprintf("an array of 1 to %d actions", MaxActions)
	wantAction      = fmt.Sprintf("1 to %d visible ASCII characters without quotes and backslashes", MaxAction)
	wantActionTitle = fmt.Sprintf("a text of 1 to %d bytes as JSON", MaxActionTitle)
	wantActionURL   = fmt.Sprintf("a URL, or a path of your site, of at most %d visible ASCII characters", MaxActionURL)
	wantLocArgs     = fmt.Sprintf("an array of 1 to %d texts of at most %d bytes as JSON", MaxLocArgs, MaxLocArg)
	wantTexts       = fmt.Sprintf("an object of 1 to %d languages, as in {\"de\":{\"title\":\"…\",\"body\":\"…\"}}", MaxLanguages)
	wantLanguage    = fmt.Sprintf("a language tag of at most %d characters, as in de or pt-BR", MaxLanguage)
)

var styleFields = []string{
	"badge", "sound", "silent", "image", "category", "actions", "title_loc_key", "title_loc_args", "body_loc_key", "body_loc_args", "texts",
}

// readStyle reads what an event has beside its texts.
func (e *Event) readStyle(o strictjson.Object) {
	if n, ok := o.Whole("badge", 0, MaxBadge); ok {
		badge := int(n)
		e.Badge = &badge
	}
	e.Sound = nonEmpty(o, "sound", wantSound)
	e.Silent, _ = o.Bool("silent")
	e.Image = nonEmpty(o, "image", wantImage)
	e.Category = nonEmpty(o, "category", wantName)
	e.Actions = readActions(o)
	e.TitleLocKey = nonEmpty(o, "title_loc_key", wantName)
	e.TitleLocArgs = readLocArgs(o, "title_loc_args")
	e.BodyLocKey = nonEmpty(o, "body_loc_key", wantName)
	e.BodyLocArgs = readLocArgs(o, "body_loc_args")
	e.readTexts(o)
	for _, p := range overridable {
		if value, given := o.Get(p); given {
			if e.Override == nil {
				e.Override = make(map[Platform]json.RawMessage)
			}
			e.Override[Platform(p)] = value
		}
	}
}

func readActions(o strictjson.Object) (list []Action) {
	const name = "actions"
	value, given := o.Get(name)
	if !given {
		return nil
	}
	place := o.Reader.At(o.Place, name)
	items, _ := o.Reader.Array(place, value, name, 1, MaxActions)
	whole := true
	for i, item := range items {
		a, ok := o.Reader.Object(strictjson.Item(place, i), item)
		if whole = whole && ok; !ok {
			continue
		}
		a.Only("action", "title", "url")
		a.Need("action", wantAction)
		a.Need("title", wantActionTitle)
		list = append(list, Action{nonEmpty(a, "action", wantAction), nonEmpty(a, "title", wantActionTitle), nonEmpty(a, "url", wantActionURL)})
	}
	if !whole { // the places of the others would be wrong
		return nil
	}
	return list
}

func readLocArgs(o strictjson.Object, name string) (list []string) {
	value, given := o.Get(name)
	if !given {
		return nil
	}
	place := o.Reader.At(o.Place, name)
	items, _ := o.Reader.Array(place, value, "texts", 1, MaxLocArgs)
	for i, item := range items {
		var text string
		if item[0] != '"' || json.Unmarshal(item, &text) != nil {
			o.Reader.Addf(strictjson.Item(place, i), "want a text, got %s", strictjson.TypeName(item))
		}
		list = append(list, text)
	}
	return list
}

// readTexts reads the texts by language. The languages are in lower case then.
func (e *Event) readTexts(o strictjson.Object) {
	value, given := o.Get("texts")
	if !given {
		return
	}
	texts, ok := o.Reader.Object(o.Reader.At(o.Place, "texts"), value)
	if !ok {
		return
	}
	e.Texts = make(map[string]Text)
	for language, value := range texts.All() {
		if t, ok := o.Reader.Object(o.Reader.At(texts.Place, language), value); ok {
			t.Only("title", "body")
			if _, twice := e.Texts[strings.ToLower(language)]; twice {
				t.Addf("", "is there in another spelling, too")
			}
			e.Texts[strings.ToLower(language)] = Text{nonEmpty(t, "title", wantTitle), nonEmpty(t, "body", wantBody)}
		}
	}
}

// checkStyle adds a fault for each field of the style, the texts and the overrides that breaks a bound,
// and makes the overrides canonical.
func (e *Event) checkStyle(o strictjson.Object, wrong func(name, format string, args ...any)) {
	if e.Badge != nil && (*e.Badge < 0 || *e.Badge > MaxBadge) {
		wrong("badge", "is %d: want 0 to %d", *e.Badge, MaxBadge)
	}
	name := func(field, text string, most int, want string) {
		if text != "" && (!matches(text, most, visibleSyntax) || strings.ContainsAny(text, `"\`)) {
			wrong(field, "%q: want %s", strictjson.Clip(text), want)
		}
	}
	name("sound", e.Sound, MaxSound, wantSound)
	name("image", e.Image, MaxImage, wantImage)
	if u, err := url.Parse(e.Image); e.Image != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
		wrong("image", "%q: want %s", strictjson.Clip(e.Image), wantImage)
	}
	name("category", e.Category, MaxCategory, wantName)
	name("title_loc_key", e.TitleLocKey, MaxLocKey, wantName)
	name("body_loc_key", e.BodyLocKey, MaxLocKey, wantName)
	e.checkLocArgs(wrong, "title_loc_args", e.TitleLocArgs, e.TitleLocKey)
	e.checkLocArgs(wrong, "body_loc_args", e.BodyLocArgs, e.BodyLocKey)
	if len(e.Actions) > MaxActions {
		wrong("actions", "holds %d: want %s", len(e.Actions), wantActions)
	}
	for i, a := range e.Actions {
		place := strictjson.Item("actions", i)
		name(place+".action", cmp.Or(a.Action, " "), MaxAction, wantAction)
		name(place+".url", a.URL, MaxActionURL, wantActionURL)
		if n := lengthAsJSON(a.Title); n == 0 || n > MaxActionTitle {
			wrong(place+".title", "has %d bytes as JSON: want %s", n, wantActionTitle)
		}
	}
	e.checkTexts(wrong)
	e.checkSilent(wrong)
	e.checkOverrides(o)
}

func (e *Event) checkLocArgs(wrong func(name, format string, args ...any), field string, list []string, key string) {
	if list != nil && key == "" {
		wrong(field, "are for no key: name it, or leave them out")
	}
	if list != nil && (len(list) == 0 || len(list) > MaxLocArgs) {
		wrong(field, "holds %d: want %s", len(list), wantLocArgs)
	}
	for i, text := range list {
		if n := lengthAsJSON(text); n > MaxLocArg {
			wrong(strictjson.Item(field, i), "has %d bytes as JSON: want %s", n, wantLocArgs)
		}
	}
}

func (e *Event) checkTexts(wrong func(name, format string, args ...any)) {
	if n := len(e.Texts); e.Texts != nil && (n == 0 || n > MaxLanguages) {
		wrong("texts", "holds %d: want %s", n, wantTexts)
		return
	}
	for _, language := range slices.Sorted(maps.Keys(e.Texts)) {
		place, t := "texts."+language, e.Texts[language]
		if err := CheckLanguage(language); err != nil || language != strings.ToLower(language) {
			wrong(place, "want %s", wantLanguage)
		}
		if t == (Text{}) {
			wrong(place, "has neither title nor body")
		}
		if n := lengthAsJSON(t.Title); n > MaxTitle {
			wrong(place+".title", "has %d bytes as JSON: want %s", n, wantTitle)
		}
		if n := lengthAsJSON(t.Body); n > MaxBody {
			wrong(place+".body", "has %d bytes as JSON: want %s", n, wantBody)
		}
	}
}

// checkSilent adds a fault for each field that is for people, if the event is not.
func (e *Event) checkSilent(wrong func(name, format string, args ...any)) {
	if !e.Silent {
		return
	}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"title", e.Title != ""},
		{"body", e.Body != ""},
		{"texts", e.Texts != nil},
		{"sound", e.Sound != ""},
		{"image", e.Image != ""},
		{"category", e.Category != ""},
		{"actions", e.Actions != nil},
		{"title_loc_key", e.TitleLocKey != ""},
		{"body_loc_key", e.BodyLocKey != ""},
	} {
		if f.given {
			wrong(f.name, "is for people, and a silent event shows nothing: leave it out")
		}
	}
}

// checkSize adds a fault if the message to a platform, or the payload of the event's task, might be too long. It names
// what is the longest in it.
func (e *Event) checkSize(o strictjson.Object) {
	if len(o.Reader.Faults) > 0 || e.Texts == nil && e.Override == nil && e.isPlain() {
		return // what is wrong is not measured, and what is plain fits
	}
	style, err := json.Marshal(e.Style)
	if err != nil {
		o.Addf("", "%v", err) // it always can be marshalled
		return
	}
	for _, p := range overridable {
		total, longest, field := len(style), 0, ""
		for _, part := range e.parts(Platform(p)) {
			if !part.inStyle {
				total += part.bytes
			}
			if part.bytes > longest {
				longest, field = part.bytes, part.field
			}
		}
		if total > MaxContent {
			o.Addf(field, "is the longest, %d bytes, of what makes up the message to a device of %s, %d bytes as JSON: want at most %d in all",
				longest, p, total, MaxContent)
			return
		}
	}
	whole, err := json.Marshal(e)
	if err != nil {
		o.Addf("", "%v", err)
		return
	}
	// Databases write a space after each comma and colon.
	size := len(whole) + strings.Count(string(whole), ",") + strings.Count(string(whole), ":")
	if size > queue.MaxPayload-eventRoom {
		o.Addf("recipients", "are too many for an event with so many texts: it has up to %d bytes as JSON, want at most %d; send it to fewer at a time",
			size, queue.MaxPayload-eventRoom)
	}
}

// isPlain reports whether there is nothing of a style.
func (e *Event) isPlain() bool {
	s := e.Style
	return s.Badge == nil && s.Sound == "" && !s.Silent && s.Image == "" && s.Category == "" && s.Actions == nil && s.TitleLocKey == "" && s.BodyLocKey == ""
}

// part is a part of the content of a message, in bytes as compact JSON, with its name.
type part struct {
	field   string
	bytes   int
	inStyle bool
}

// parts returns those of a message to a device of the platform, in its longest language. Those of the
// style are there to be named.
func (e *Event) parts(p Platform) (all []part) {
	quoted := func(name string, n int) int { return len(`"":"",`) + len(name) + n }
	title, body := e.lengths(Text{e.Title, e.Body})
	all = []part{{field: "title", bytes: quoted("title", title)}, {field: "body", bytes: quoted("body", body)}}
	for language := range e.Texts {
		t, b := e.lengths(e.textIn(language))
		if t+b > title+body {
			title, body = t, b
			all = []part{
				{field: "texts." + language + ".title", bytes: quoted("title", t)},
				{field: "texts." + language + ".body", bytes: quoted("body", b)},
			}
		}
	}
	inStyle := func(name string, texts ...string) {
		n := 0
		for _, text := range texts {
			n += quoted("", lengthAsJSON(text))
		}
		all = append(all, part{field: name, bytes: quoted(name, n), inStyle: true})
	}
	inStyle("image", e.Image)
	inStyle("title_loc_args", e.TitleLocArgs...)
	inStyle("body_loc_args", e.BodyLocArgs...)
	var buttons []string
	for _, a := range e.Actions {
		buttons = append(buttons, a.Action, a.Title, a.URL)
	}
	inStyle("actions", buttons...)
	if e.Data != nil {
		all = append(all, part{field: "data", bytes: len(`"data":,`) + len(e.Data)})
	}
	if o := e.Override[p]; o != nil {
		all = append(all, part{field: string(p), bytes: len(o)})
	}
	return all
}

// lengths returns how many bytes title and body of a message may have, in quotes, as JSON: what is
// not said is the actor's username, and the type.
func (e *Event) lengths(t Text) (title, body int) {
	title, body = lengthAsJSON(t.Title), lengthAsJSON(t.Body)
	if e.Silent {
		return title, body
	}
	if t.Title == "" {
		title = MaxTitle
	}
	if t.Body == "" {
		body = MaxType
	}
	return title, body
}

// textIn returns what the event says in a language that texts has.
func (e *Event) textIn(language string) Text {
	t := e.Texts[language]
	return Text{cmp.Or(t.Title, e.Title), cmp.Or(t.Body, e.Body)}
}

var languageSyntax = regexp.MustCompile(`^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$`)

// CheckLanguage returns an error, for people, unless the tag has the form of a language's (BCP 47).
func CheckLanguage(tag string) error {
	if !matches(tag, MaxLanguage, languageSyntax) {
		return fmt.Errorf("%q: want %s", strictjson.Clip(tag), wantLanguage)
	}
	return nil
}

// lookup returns the language of texts for a device of that language, by RFC 4647, 3.4; "": none.
func (e *Event) lookup(language string) string {
	if len(e.Texts) == 0 {
		return ""
	}
	language = strings.ToLower(language)
	for language != "" {
		if _, found := e.Texts[language]; found {
			return language
		}
		parts := strings.Split(language, "-")
		parts = parts[:len(parts)-1]
		if n := len(parts); n > 0 && len(parts[n-1]) == 1 { // what begins an extension stands with it
			parts = parts[:n-1]
		}
		language = strings.Join(parts, "-")
	}
	return ""
}

// fill puts the number of events into the arguments of texts.
func fill(args []string, number string) []string {
	if !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, countPlace) }) {
		return args
	}
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], countPlace, number)
	}
	return args
}

// countPlace stands for the number of events in a text.
const countPlace = "{count}"
