<?php
// Where somebody asks for that, the time that a PHP process was busy is noted: the note costs more than a hand-off. It is
// in a file of its own, since PHP fills $_SERVER for a file that mentions it, asked or not: 12 µs of the 60 that a
// hand-off takes. Every download script of the experiment has this line.
if (isset($_GET['timed'])) {
    require __DIR__ . '/note.php';
}
