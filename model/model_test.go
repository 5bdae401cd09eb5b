//go:build model

// Package model_test has SPIN search the models of this folder; README.md says what they are.
package model_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// variants are the rules that can be left out of a model: the property that fails first then,
// and further definitions under which it does.
var variants = map[string]map[string][]string{
	"queue.pml": {
		"V_CLAIM_NAMES_ITS_OWN":        {"overtaken"},
		"V_FINISH_WITHOUT_LEASE":       {"two_holders_of_one_task", "-DORDERED=0"},
		"V_KEY_BACK":                   {"duplicate_key"},
		"V_KEY_FREED_BY_A_TIMER":       {"two_holders_of_one_key"},
		"V_KEY_KEPT":                   {"done_by_work_that_began_before"},
		"V_MEND_WITHOUT_LOOKING_AGAIN": {"two_holders_of_one_key"},
		"V_MERGE_STILL_EXPIRES":        {"expired_though_it_must_not"},
		"V_MERGE_WITHOUT_LEASE":        {"waits_for_ever"},
		"V_NEXT_BY_AN_OLD_VIEW":        {"key_held_for_ever"},
		"V_NEXT_OF_BEHIND_ALONE":       {"overtaken"},
		"V_NO_ABSORB_LOCK":             {"done_by_work_that_began_before", "-DMORTAL=0"},
		"V_NO_HELD_KEYS":               {"two_holders_of_one_key"},
		"V_NO_MEND":                    {"key_held_for_ever"},
		"V_SWEEP_WITHOUT_LOCK":         {"two_holders_of_one_task"},
	},
	"guard.pml": {
		"V_ADD_INTO_A_MISSING_SET": {"made_without_a_refill"},
		"V_ADD_KEEPS_GUARD":        {"contact_is_missing"},
		"V_APPLY_IGNORES_TOKEN":    {"contact_is_missing"},
		"V_APPLY_TO_A_LOST_SET":    {"contact_is_missing"},
		"V_CORRECT_WHAT_ROSE":      {"contact_is_missing"},
		"V_CUT_KEEPS_GUARD":        {"score_is_too_low"},
		"V_GT_DROPPED":             {"contact_is_missing"},
		"V_OUTSIDE_DROPPED":        {"contact_is_missing"},
		"V_REFILL_IGNORES_GUARD":   {"score_is_too_low"},
		"V_REMOVE_WHAT_ROSE":       {"contact_is_missing"},
		"V_REMOVE_WITHOUT_REFILL":  {"set_is_too_small", "-DMIN=2", "-DMAX=3"},
	},
}

// all asks for the searches that differ from another one in a number alone, too.
var all = os.Getenv("ACTIVITYD_MODEL") == "all"

func TestTheModelsHaveNoErrors(t *testing.T) {
	t.Parallel()
	// Each run of the queue comes to an end, as no state can be reached from itself: SPIN looks for cycles
	// without progress, and no statement of the model is marked as progress. On its way it looks at all assertions.
	without(t, "queue", "queue.pml", nil, "-DNP", "-DNOFAIR")
	without(t, "guard, larger set", "guard.pml", []string{"-DMIN=2", "-DMAX=3"}, "-DSAFETY")
	if all {
		without(t, "queue, without an ordering key", "queue.pml", []string{"-DORDERED=0"}, "-DSAFETY")
		without(t, "guard", "guard.pml", nil, "-DSAFETY")
	}
}

// without searches a model, which must have no error.
func without(t *testing.T, name, file string, definitions []string, options ...string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		search(t, file, definitions, options...).isWithoutError(t)
	})
}

// TestEachVariantFails searches for the shortest way to an error.
func TestEachVariantFails(t *testing.T) {
	t.Parallel()
	for file, properties := range variants {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, variant := range regexp.MustCompile(`\bV_[A-Z_]+`).FindAllString(string(text), -1) {
			if properties[variant] == nil {
				t.Errorf("%s has the variant %s, of which it is not known which property fails", file, variant)
			}
		}
		for variant, fails := range properties {
			t.Run(variant, func(t *testing.T) {
				t.Parallel()
				found := search(t, file, append([]string{"-D" + variant}, fails[1:]...), "-DSAFETY", "-DBFS")
				if want := "assertion violated  !(" + fails[0] + ")"; found.errors != 1 || !strings.Contains(found.output, want) {
					t.Errorf("not found: %s\n%s", want, found.output)
				}
			})
		}
	}
}

// searched is what a search by SPIN found.
type searched struct {
	folder, output string
	errors         int // -1: it did not come to its end
}

// maxDepth is how many steps a way may have; a search that would need more fails.
const maxDepth = 10_000

// search searches a model with some definitions. The options are those with which SPIN's verifier is compiled.
func search(t *testing.T, file string, definitions []string, options ...string) searched {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	s := searched{folder: t.TempDir(), errors: -1}
	s.run(t, "spin", slices.Concat(definitions, []string{"-a", path})...)
	// All steps are of variables that all processes share: there is no order to leave out.
	compile := []string{"-w", "-O2", "-DNOREDUCE", "-DMEMLIM=4000"}
	if slices.Contains(options, "-DBFS") { // an error is found soon
		compile[1] = "-O0"
	}
	s.run(t, cmp.Or(os.Getenv("CC"), "gcc"), slices.Concat(compile, options, []string{"-o", "pan", "pan.c"})...)
	began := time.Now()
	args := []string{"-m" + strconv.Itoa(maxDepth)}
	if slices.Contains(options, "-DNP") {
		args = append(args, "-l")
	}
	s.output = s.run(t, "./pan", args...)
	if found := regexp.MustCompile(`errors: (\d+)`).FindStringSubmatch(s.output); found != nil {
		s.errors, _ = strconv.Atoi(found[1])
	}
	states := regexp.MustCompile(`\d+ states, stored`).FindString(s.output)
	t.Logf("%s %s: %s in %s", file, strings.Join(definitions, " "), states, time.Since(began).Round(10*time.Millisecond))
	return s
}

// run runs a program in the folder of the search.
func (s searched) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = s.folder
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "errors: ") { // pan's code is not 0 where it found an error
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// isWithoutError requires that the search was exhaustive, came to all statements, and found
// no error.
func (s searched) isWithoutError(t *testing.T) {
	t.Helper()
	for _, flaw := range []string{"max search depth too small", "Search not completed", "out of memory", "hash-compact", "bitstate"} {
		if strings.Contains(strings.ToLower(s.output), strings.ToLower(flaw)) {
			t.Errorf("the search was not exhaustive: %s", flaw)
		}
	}
	if s.errors != 0 {
		trail, _ := filepath.Glob(filepath.Join(s.folder, "*.trail"))
		way := ""
		if len(trail) > 0 {
			way = s.run(t, "./pan", "-r")
		}
		t.Errorf("%d errors\n%s\n%s", s.errors, s.output, way)
	}
	for _, line := range regexp.MustCompile(`(?m)^\t.*, state \d+, .*$`).FindAllString(s.output, -1) {
		if !strings.HasSuffix(line, `"-end-"`) {
			t.Error("never reached:", line)
		}
	}
}
