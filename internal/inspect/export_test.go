package inspect

var (
	Because = because
	Proof   = proof
)
