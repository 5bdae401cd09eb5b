//go:build race

package endtoend_test

// raceDetector is on in activityd's processes when it is on in the tests.
const raceDetector = true
