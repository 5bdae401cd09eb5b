package pictures

import (
	"math/rand/v2"
	"slices"
)

// Subject says what a picture shows, so that a title can be found which fits.
type Subject struct {
	Light string // one of [Lights]
	Scene string // one of [Scenes]
}

// SubjectOf tells what the picture with this id shows.
func SubjectOf(id uint64) Subject {
	r := dice(id)
	return Subject{Light: lights[r.IntN(len(lights))].name, Scene: scenes[r.IntN(len(scenes))].name}
}

// Lights returns the names of all kinds of light.
func Lights() []string {
	names := make([]string, 0, len(lights))
	for _, l := range lights {
		names = append(names, l.name)
	}
	return names
}

// Scenes returns the names of all kinds of scene.
func Scenes() []string {
	names := make([]string, 0, len(scenes))
	for _, s := range scenes {
		names = append(names, s.name)
	}
	return names
}

// dice returns the source of everything random about one picture. Its first two
// rolls are the light and the scene.
func dice(id uint64) *rand.Rand {
	const salt = 0x9e3779b97f4a7c15 // neighbouring ids must not look alike
	return rand.New(rand.NewPCG(id, salt))
}

func lightNamed(name string) light {
	return lights[slices.IndexFunc(lights, func(l light) bool { return l.name == name })]
}

func sceneNamed(name string) scene {
	return scenes[slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })]
}
