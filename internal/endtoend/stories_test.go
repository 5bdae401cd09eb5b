package endtoend_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/index"
)

var updateStories = flag.Bool("update", false, "write the answers into testdata/stories")

// stories is the folder of the stories. Its README defines a story.
const stories = "../../testdata/stories"

// TestStories plays each story in memory, and on the database and the Redis of the tests.
// Only the servers have push.
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(stories + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d stories, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must(t, err)
		text := string(raw)
		hasPush := strings.Contains(text, "has a phone")
		stages := map[string]func(*testing.T, index.Settings) *stage{"on servers": stageOnServers}
		if !hasPush {
			stages["in memory"] = stageInMemory
		}
		for name, newStage := range stages {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+name, func(t *testing.T) {
				t.Parallel()
				told := tell(t, newStage, text)
				if *updateStories {
					if hasPush || name == "in memory" {
						must(t, os.WriteFile(file, []byte(told), 0o600))
					}
					return
				}
				for _, wrong := range differences(file, text, told) {
					t.Error(wrong)
				}
			})
		}
	}
}

// TestWrongStoriesAreFound: an answer that is another, missing or too long is reported with
// its line.
func TestWrongStoriesAreFound(t *testing.T) {
	t.Parallel()
	const site = "A story.\n-- site --\nmembers are ben, ada\nben calls ada a contact\nada uploads \"The pier\" (public)\n-- story --\n? what does ben see\n"
	for answer, want := range map[string]string{
		"  ada: The pier\n  found by the database\n":    "",
		"  ada: The harbour\n  found by the database\n": "s.txtar:8: what does ben see",
		"": "s.txtar:8: what does ben see",
		"  ada: The pier\n  found by the database\n  and by ada\n":      "s.txtar:10: what does ben see",
		"  ada: The pier\n  found by the database\n? what does ada see": "s.txtar:11: what does ada see",
	} {
		told := tell(t, stageInMemory, site+answer)
		found := strings.Join(differences("s.txtar", site+answer, told), "")
		if (want == "") != (found == "") || !strings.HasPrefix(found, want) {
			t.Errorf("%q: found %q, want %q", answer, found, want)
		}
	}
}

// differences compares a story with how it was told, whose lines differ in answers only.
func differences(file, text, told string) (found []string) {
	wanted, got := answersOf(text), answersOf(told)
	for i, want := range wanted {
		lines := got[i].lines
		if diff := cmp.Diff(want.lines, lines); diff != "" {
			same := 0
			for same < len(lines) && same < len(want.lines) && lines[same] == want.lines[same] {
				same++
			}
			found = append(found, fmt.Sprintf("%s:%d: %s (-file +answer):\n%s", file, want.at+1+same, want.question, diff))
		}
	}
	return found
}

// answer follows a question in a story.
type answer struct {
	question string
	at       int // the line of the question, from 1
	lines    []string
}

func answersOf(text string) (all []answer) {
	for i, line := range strings.Split(text, "\n") {
		if question, is := strings.CutPrefix(line, "? "); is {
			all = append(all, answer{question: question, at: i + 1})
		} else if strings.HasPrefix(line, "  ") && len(all) > 0 {
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	return all
}
