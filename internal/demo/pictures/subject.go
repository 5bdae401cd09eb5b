package pictures

import "math/rand/v2"

// Subject is the subject of a picture, for a title that fits.
type Subject struct {
	Light string // "dawn", "day" and so on
	Scene string // "mountains", "sea" and so on
}

// SubjectOf returns the subject of the picture with this id.
func SubjectOf(id uint64) Subject {
	light, scene := draw(dice(id))
	return Subject{Light: light.name, Scene: scene.name}
}

// dice returns the source of everything random about a picture.
func dice(id uint64) *rand.Rand {
	const salt = 0x9e3779b97f4a7c15 // neighbouring ids must not look alike
	return rand.New(rand.NewPCG(id, salt))
}

// draw makes the first two rolls of a picture.
func draw(r *rand.Rand) (light, scene) {
	return lights[r.IntN(len(lights))], scenes[r.IntN(len(scenes))]
}
