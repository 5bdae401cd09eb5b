//go:build !race

package endtoend_test

const raceDetector = false
