package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Prefix begins the names of the variables that are settings; testPrefix begins the variables of
// tests.
const (
	Prefix     = "ACTIVITYD_"
	testPrefix = Prefix + "TEST_"
)

// FileVariable names the file of settings. It is none itself.
const FileVariable = Prefix + "CONFIG"

// Variable is the name of the setting with this flag, in the environment and in the file.
func Variable(flag string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Name is how errors name a setting: "--grace (ACTIVITYD_GRACE)", or by the variable if it has no
// flag.
func Name(f *pflag.Flag) string {
	if HasFlag(f) {
		return "--" + f.Name + " (" + Variable(f.Name) + ")"
	}
	return Variable(f.Name)
}

// noFlag marks, among the annotations, a setting that the command line does not take.
const noFlag = "no flag"

// forTests marks a setting that operators do not know.
const forTests = "for tests"

// NoFlag marks the named flags as settings without a flag.
func NoFlag(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, noFlag, nil) // there is this flag
		flags.Lookup(name).Hidden = true
	}
}

// ForTests marks flags as settings that no help and no page shows.
func ForTests(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, forTests, nil) // there is this flag
		flags.Lookup(name).Hidden = true
	}
}

// HasFlag reports whether the command line takes a setting.
func HasFlag(f *pflag.Flag) bool {
	_, none := f.Annotations[noFlag]
	return !none
}

// Loader loads settings from sources other than the command line.
type Loader struct {
	Settings *pflag.FlagSet // all that there are
	Environ  []string
	Others   []string // variables with the prefix that are no settings
	Warnings io.Writer
}

// Load sets the settings among a command's flags that the command line left alone. path is the
// file; if it is empty, [FileVariable] may name a file. A command without settings does not read
// it. The errors name each setting, and no value, which may be a secret.
func (l Loader) Load(flags *pflag.FlagSet, path string) error {
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		if !HasFlag(f) {
			errs = append(errs, fmt.Errorf("unknown flag: --%s; it is the setting %s, for the environment or the file of --config", f.Name, Variable(f.Name)))
		}
	})
	var known []string
	used := false
	l.Settings.VisitAll(func(setting *pflag.Flag) {
		known = append(known, Variable(setting.Name))
		used = used || flags.Lookup(setting.Name) != nil
	})
	environment := l.environment()
	path = cmp.Or(path, environment[FileVariable])
	delete(environment, FileVariable)
	var file map[string]string
	if path != "" && used {
		var err error
		if file, err = read(path, known); err != nil {
			return errors.Join(append(errs, fmt.Errorf("--config (%s): %w", FileVariable, err))...)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || l.Settings.Lookup(f.Name) == nil {
			return
		}
		from, name := "", Variable(f.Name)
		value, given := environment[name]
		if !given {
			value, given = file[name]
			from = path + ": "
		}
		if given && flags.Set(f.Name, value) != nil {
			errs = append(errs, fmt.Errorf("%s%s: cannot be read: want %s", from, name, Form(f)))
		}
	})
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		if !slices.Contains(known, name) {
			_, _ = fmt.Fprintf(l.Warnings, "activityd: %s has no effect: there is no such setting\n", name)
		}
	}
	return errors.Join(errs...)
}

// environment returns the variables that could be settings.
func (l Loader) environment() map[string]string {
	values := make(map[string]string)
	for _, pair := range l.Environ {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, Prefix) && !strings.HasPrefix(name, testPrefix) && !slices.Contains(l.Others, name) {
			values[name] = value
		}
	}
	return values
}

// likeName matches a name that an error may quote. The text before the first equals sign of a line
// may hold a secret: "ACTIVITYD_MYSQL_DSN: user:password@tcp(host)/name?tls=true".
var likeName = regexp.MustCompile(`^(export )?\w+$`)

// read returns the values of a file. An unknown name is an error.
func read(path string, known []string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	var errs []error
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, quoted, found := strings.Cut(line, "=")
		value, err := unquote(quoted)
		_, twice := values[name]
		switch {
		case !found, !likeName.MatchString(name):
			err = errors.New("want NAME='value'")
		case !slices.Contains(known, name):
			err = fmt.Errorf("there is no setting %s: docs/settings.md has the names", name)
		case err != nil:
			err = fmt.Errorf("%s: %w", name, err)
		case twice:
			err = fmt.Errorf("%s is there twice", name)
		default:
			values[name] = value
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, number, err))
		}
	}
	return values, errors.Join(errs...)
}

var errQuotes = errors.New("want the value in single quotes; or, if it has one, in double quotes, without \", \\, $ and `")

// unquote returns a value as systemd reads it. A character with a meaning for systemd beyond the
// quotes is an error. Shells may give a meaning to more characters of an unquoted value, as to $.
func unquote(text string) (string, error) {
	meant := " \t'\"\\" // characters with a meaning
	if n := len(text); n >= 2 && text[0] == text[n-1] {
		switch text[0] {
		case '\'':
			meant, text = "'", text[1:n-1]
		case '"':
			meant, text = "\"\\$`", text[1:n-1]
		}
	}
	if strings.ContainsAny(text, meant) {
		return "", errQuotes
	}
	return text, nil
}
