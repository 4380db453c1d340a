<?php echo "hello";
