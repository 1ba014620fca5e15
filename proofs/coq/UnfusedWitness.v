(* The constant 2 of UnfusedBound.v is attained in a small memory (new ground).

   Two passes, as in standard attention with finite tiles.  First every block of br
   query rows stays while the keys stream by, and each score is written; then every
   block of accumulators stays while the values stream by, and each score is read.
   It is valid, complete and normalised, and moves exactly

     nq (d + dv) + nq + ceil(nq / br) nk (d + dv) + 2 nq nk

   words.  Hypotheses: 0 < br, br d + d + 1 <= M and br (dv + 2) + dv + 1 <= M.  For
   dv = d and the largest br this is 2 nq nk d^2 / M + 2 nq nk to leading order: the
   constant is 2 when M is much smaller than d^2, where no fused schedule can go below
   4 (FusedBound.v), and the lead is lost from about M = d^2 on.
   Source: derived here. *)
From Coq Require Import Arith Lia List Permutation.
From iosim Require Import Tiles Lists Machine AttentionModel Phases FusedWitness.
Import ListNotations.

(* Loading one word brings its saved content with it. *)
Lemma phase_reload {X : model} (kept : word X -> Prop) M w (s : state X) F :
  Permutation (fast s) F -> NoDup (w :: F) -> length (w :: F) <= M ->
  phase kept M s [Load w] (w :: F) /\
  forall t, In t (saved s w) -> In t (content (run s [Load w]) w).
Proof.
  intros P N L. split; [ now apply (phase_load kept M [w]) | ].
  intros t Ht. destruct s as [f c m]. cbn. rewrite upd_same. apply in_or_app. now right.
Qed.

Section Witness.
Variables d dv nq nk br : nat.
Notation vis := (all_pairs nq nk).
Notation X := (attention false true true d dv vis).
Notation row_accs := (accs true d dv vis).
Notation row_outs := (out_words true d dv vis).

Definition score_pair (j i : nat) : list (event X) :=
  map (@New X) [Ws i j] ++ [@Do X (Score i j)] ++ map (@Add X) [Ws i j] ++ map (@Drop X) [Ws i j].
Definition score_key (rs : list nat) (j : nat) : list (event X) :=
  map (@Load X) (k_words d j) ++ flat_map (score_pair j) rs ++ map (@Drop X) (k_words d j).
Definition score_block (rs : list nat) : list (event X) :=
  map (@Load X) (flat_map (q_words d) rs) ++ flat_map (score_key rs) (seq 0 nk)
  ++ map (@Drop X) (flat_map (q_words d) rs).

Definition absorb_pair (j i : nat) : list (event X) :=
  [@Load X (Ws i j)] ++ [@Do X (Absorb i j)] ++ map (@Drop X) [Ws i j].
Definition absorb_key (rs : list nat) (j : nat) : list (event X) :=
  map (@Load X) (v_words dv j) ++ flat_map (absorb_pair j) rs ++ map (@Drop X) (v_words dv j).
Definition out_block (rs : list nat) : list (event X) :=
  map (@New X) (flat_map row_accs rs) ++ flat_map (absorb_key rs) (seq 0 nk)
  ++ flat_map (fun i => [@Do X (Finish i)]) rs
  ++ map (@Store X) (flat_map row_outs rs) ++ map (@Drop X) (flat_map row_accs rs).

Definition two_passes : list (event X) :=
  flat_map score_block (tiles nq br) ++ flat_map out_block (tiles nq br).

(* Traffic *)

Lemma total_loop {A} cost (f : A -> list (event X)) c l :
  (forall a, total cost (f a) = c) -> total cost (flat_map f l) = length l * c.
Proof. intros H. induction l; cbn; [ reflexivity | rewrite total_app, H, IHl; lia ]. Qed.

Lemma score_block_traffic rs : traffic (score_block rs) = length rs * (d + nk) + nk * d.
Proof.
  unfold traffic, score_block. rewrite !total_app.
  rewrite (total_loop _ (score_key rs) (d + length rs)).
  - rewrite (total_map _ (@Load X) 1), (total_map _ (@Drop X) 0) by reflexivity.
    rewrite (flat_map_length _ d) by (intros; unfold q_words; now rewrite map_length, seq_length).
    rewrite seq_length. lia.
  - intros j. unfold score_key. rewrite !total_app.
    rewrite (total_loop _ (score_pair j) 1) by reflexivity.
    rewrite (total_map _ (@Load X) 1), (total_map _ (@Drop X) 0) by reflexivity.
    unfold k_words. rewrite map_length, seq_length. lia.
Qed.

Lemma out_block_traffic rs : traffic (out_block rs) = length rs * (dv + 1 + nk) + nk * dv.
Proof.
  unfold traffic, out_block. rewrite !total_app.
  rewrite (total_loop _ (absorb_key rs) (dv + length rs)).
  - rewrite (total_loop _ (fun i => [@Do X (Finish i)]) 0) by reflexivity.
    rewrite (total_map _ (@New X) 0), (total_map _ (@Store X) 1), (total_map _ (@Drop X) 0) by reflexivity.
    rewrite !Nat.mul_0_r, (flat_map_length _ (dv + 1)), seq_length; [ lia | ].
    intros i _. unfold out_words, a_words. rewrite app_length, map_length, seq_length. reflexivity.
  - intros j. unfold absorb_key. rewrite !total_app.
    rewrite (total_loop _ (absorb_pair j) 1) by reflexivity.
    rewrite (total_map _ (@Load X) 1), (total_map _ (@Drop X) 0) by reflexivity.
    unfold v_words. rewrite map_length, seq_length. lia.
Qed.

Theorem two_passes_traffic : 0 < br ->
  traffic two_passes = nq * (d + dv) + nq + cdiv nq br * (nk * (d + dv)) + 2 * nq * nk.
Proof.
  intros Hb.
  assert (E1 : forall Bs, traffic (flat_map score_block Bs)
    = length (concat Bs) * (d + nk) + length Bs * (nk * d)).
  { induction Bs as [| rs Bs IH]; [ reflexivity | ]. cbn [flat_map concat length].
    pose proof (score_block_traffic rs) as B.
    unfold traffic in *. rewrite total_app, IH, B, app_length. lia. }
  assert (E2 : forall Bs, traffic (flat_map out_block Bs)
    = length (concat Bs) * (dv + 1 + nk) + length Bs * (nk * dv)).
  { induction Bs as [| rs Bs IH]; [ reflexivity | ]. cbn [flat_map concat length].
    pose proof (out_block_traffic rs) as B.
    unfold traffic in *. rewrite total_app, IH, B, app_length. lia. }
  specialize (E1 (tiles nq br)). specialize (E2 (tiles nq br)).
  rewrite concat_tiles, seq_length in E1, E2 by exact Hb.
  assert (T : length (tiles nq br) = cdiv nq br)
    by (unfold tiles; now rewrite map_length, seq_length).
  rewrite T in E1, E2.
  unfold traffic, two_passes in *. rewrite total_app, E1, E2. lia.
Qed.

(* From here on the words fit. *)
Variable M : nat.
Hypothesis br_positive : 0 < br.
Hypothesis score_room : br * d + d + 1 <= M.
Hypothesis out_room : br * (dv + 2) + dv + 1 <= M.

Definition nothing (w : word X) : Prop := False.
Definition keep_accs (w : word X) : Prop :=
  match (w : aword) with Wa _ _ | Wm _ | Wl _ => True | _ => False end.

(* First pass *)

Section ScoreBlock.
Variable rs : list nat.
Hypothesis rs_NoDup : NoDup rs.
Hypothesis rs_length : length rs <= br.
Definition qs : list (word X) := flat_map (q_words d) rs.

Definition kq (j : nat) : list (word X) := k_words d j ++ qs.

Lemma in_qs w : In w qs -> exists i c, w = Wq i c.
Proof. unfold qs. rewrite in_flat_map. intros (i & _ & H). apply in_q in H as (c & ->). eauto. Qed.

Lemma qs_NoDup : NoDup qs.
Proof.
  apply (NoDup_flat_map row_of); [ exact rs_NoDup | | ].
  - intros i _. apply words_NoDup. congruence.
  - intros i w _ H. apply in_q in H as (c & ->). reflexivity.
Qed.

Lemma qs_length : length qs <= br * d.
Proof.
  unfold qs. rewrite (flat_map_length _ d) by (intros; unfold q_words; now rewrite map_length, seq_length).
  apply Nat.mul_le_mono_r, rs_length.
Qed.

Lemma score_frame i j : NoDup (([Ws i j] : list (word X)) ++ kq j) /\
  length (([Ws i j] : list (word X)) ++ kq j) <= M.
Proof.
  pose proof qs_length as HL. split.
  - unfold kq. apply NoDup_app; [ repeat constructor; auto | apply NoDup_app | ].
    + apply words_NoDup. congruence.
    + apply qs_NoDup.
    + intros w H H'. apply in_qs in H' as (? & ? & ->). unfold k_words in H. in_words.
    + intros w [<- | []] H. apply in_app_iff in H as [H | H].
      * unfold k_words in H. in_words.
      * apply in_qs in H as (? & ? & E). discriminate.
  - unfold kq. rewrite !app_length. unfold k_words. rewrite map_length, seq_length.
    change (word X) with aword in *. cbn [length]. lia.
Qed.

Definition scored (j i : nat) (s : state X) : Prop := In (Score i j) (saved s (Ws i j)).

Lemma score_pair_phase j i (s : state X) : In i rs -> Permutation (fast s) (kq j) ->
  phase nothing M s (score_pair j i) (kq j) /\ scored j i (run s (score_pair j i)).
Proof.
  intros Hi P. destruct (score_frame i j) as [N HL].
  set (F := kq j) in *. set (W := [Ws i j] : list (word X)) in *.
  assert (P1 : phase nothing M s (map (@New X) W) (W ++ F)).
  { apply (phase_new (X := X)); trivial. intros w [<- | []]. now split. }
  set (s1 := run s (map (@New X) W)) in *.
  destruct (phase_do (X := X) nothing M (Score i j) s1 (W ++ F)) as (P2 & R2); trivial.
  { apply P1. }
  { intros w Hw. change (In w (q_words d i ++ k_words d j ++ W)) in Hw.
    unfold F, kq, qs. rewrite !in_app_iff, in_flat_map in *. destruct Hw as [Hw | [Hw | Hw]]; eauto. }
  { exact I. }
  set (s2 := run s1 [@Do X (Score i j)]) in *.
  destruct (phase_add (X := X) nothing M W s2 (W ++ F)) as (P3 & R3); trivial.
  { apply P2. }
  { apply incl_appl, incl_refl. }
  set (s3 := run s2 (map (@Add X) W)) in *.
  assert (P4 : phase nothing M s3 (map (@Drop X) W) F).
  { apply (phase_drop (X := X)); trivial; [ apply P3 | intros w _ H; exact H ]. }
  unfold score_pair. split.
  - apply (phase_app (X := X)) with (W ++ F); [ exact P1 | ].
    apply (phase_app (X := X)) with (W ++ F); [ exact P2 | ].
    now apply (phase_app (X := X)) with (W ++ F).
  - rewrite !run_app. apply P4. apply R3; [ now left | ]. apply R2. now left.
Qed.

Definition row_scored (j : nat) (s : state X) := forall i, In i rs -> scored j i s.

Lemma score_key_phase j (s : state X) : Permutation (fast s) qs ->
  phase nothing M s (score_key rs j) qs /\ row_scored j (run s (score_key rs j)).
Proof.
  intros P. destruct (score_frame 0 j) as [N HL].
  apply NoDup_app_inv in N as [_ N]. rewrite app_length in HL.
  assert (HF : length (kq j) <= M) by (change (word X) with aword in *; lia).
  assert (P1 : phase nothing M s (map (@Load X) (k_words d j)) (kq j))
    by now apply (phase_load (X := X)).
  set (s1 := run s (map (@Load X) (k_words d j))) in *.
  destruct (phase_loop (X := X) nothing M (score_pair j) (scored j) (fun _ => True)
    (kq j) rs) with (s := s1) as (P2 & R2); trivial.
  { intros i a b [_ K]. apply K. }
  { intros i a Hi Ha _. now apply score_pair_phase. }
  { apply P1. }
  set (s2 := run s1 (flat_map (score_pair j) rs)) in *.
  assert (P3 : phase nothing M s2 (map (@Drop X) (k_words d j)) qs).
  { apply (phase_drop (X := X)); trivial; [ apply P2 | intros w _ H; exact H ]. }
  unfold score_key. split.
  - apply (phase_app (X := X)) with (kq j); [ exact P1 | ].
    now apply (phase_app (X := X)) with (kq j).
  - rewrite !run_app. intros i Hi. apply P3. now apply R2.
Qed.

Lemma score_block_phase (s : state X) : Permutation (fast s) [] ->
  phase nothing M s (score_block rs) [] /\
  forall j, In j (seq 0 nk) -> row_scored j (run s (score_block rs)).
Proof.
  intros P. pose proof qs_length as HL.
  assert (HQ : length qs <= M) by lia.
  assert (P1 : phase nothing M s (map (@Load X) qs) qs).
  { rewrite <- (app_nil_r qs) at 2. apply (phase_load (X := X)); rewrite ?app_nil_r; trivial.
    apply qs_NoDup. }
  set (s1 := run s (map (@Load X) qs)) in *.
  destruct (phase_loop (X := X) nothing M (score_key rs) row_scored (fun _ => True) qs (seq 0 nk))
    with (s := s1) as (P2 & R2); trivial.
  { intros j a b [_ K] H i Hi. apply K. now apply H. }
  { intros j a _ Ha _. now apply score_key_phase. }
  { apply P1. }
  set (s2 := run s1 (flat_map (score_key rs) (seq 0 nk))) in *.
  assert (P3 : phase nothing M s2 (map (@Drop X) qs) []).
  { apply (phase_drop (X := X)); rewrite ?app_nil_r; trivial;
      [ apply P2 | apply qs_NoDup | intros w _ H; exact H ]. }
  unfold score_block. fold qs. split.
  - apply (phase_app (X := X)) with qs; [ exact P1 | ]. now apply (phase_app (X := X)) with qs.
  - rewrite !run_app. intros j Hj i Hi. apply P3. now apply (R2 j Hj).
Qed.
End ScoreBlock.

Definition all_scored (s : state X) : Prop :=
  forall i j, i < nq -> j < nk -> In (Score i j) (saved s (Ws i j)).

Lemma tile_facts rs : In rs (tiles nq br) -> NoDup rs /\ length rs <= br.
Proof.
  unfold tiles. rewrite in_map_iff. intros (b & <- & _). unfold tile.
  rewrite seq_length. split; [ apply seq_NoDup | apply rows_le ].
Qed.

Lemma first_pass : let s := run (init X) (flat_map score_block (tiles nq br)) in
  valid M (init X) (flat_map score_block (tiles nq br)) /\ fast s = [] /\ all_scored s.
Proof.
  destruct (phase_loop (X := X) nothing M score_block
    (fun rs s => forall j, In j (seq 0 nk) -> row_scored rs j s) (fun _ => True) [] (tiles nq br))
    with (s := init X) as ((V & P & _) & R); trivial.
  { intros rs a b [_ K] H j Hj i Hi. apply K. now apply (H j Hj). }
  { intros rs a Hrs Ha _. destruct (tile_facts rs Hrs). now apply score_block_phase. }
  cbn zeta. split; [ exact V | split; [ now apply Permutation_nil, Permutation_sym | ] ].
  intros i j Hi Hj.
  assert (Hc : In i (concat (tiles nq br))) by (rewrite concat_tiles by exact br_positive; apply in_seq; lia).
  apply in_concat in Hc as (rs & Hrs & Hir). apply (R rs Hrs j); [ apply in_seq; lia | exact Hir ].
Qed.
(* Second pass *)

Lemma row_accs_kept w i : In w (row_accs i) -> keep_accs w /\ row_of w = i.
Proof. intros H. apply in_accs in H as [H E]. split; [ exact H | exact E ]. Qed.

Section OutBlock.
Variable rs : list nat.
Hypothesis rs_NoDup : NoDup rs.
Hypothesis rs_length : length rs <= br.
Hypothesis rs_rows : forall i, In i rs -> i < nq.
Definition own : list (word X) := flat_map row_accs rs.
Definition vo (j : nat) : list (word X) := v_words dv j ++ own.

Lemma in_own w : In w own -> keep_accs w /\ In (row_of w) rs.
Proof.
  unfold own. rewrite in_flat_map. intros (i & Hi & H). apply row_accs_kept in H as [H <-]. auto.
Qed.

Lemma own_NoDup : NoDup own.
Proof. exact (accs_NoDup true d dv vis (fun l => l) rs rs_NoDup). Qed.

Lemma own_room : length own + dv + 1 <= M.
Proof.
  assert (E : length own = length rs * (dv + 2)) by exact (accs_length true d dv vis rs).
  assert (length rs * (dv + 2) <= br * (dv + 2)) by (apply Nat.mul_le_mono_r; exact rs_length). lia.
Qed.

Lemma out_frame i j : NoDup (([Ws i j] : list (word X)) ++ vo j) /\
  length (([Ws i j] : list (word X)) ++ vo j) <= M.
Proof.
  pose proof own_room as HL. unfold vo. split.
  - apply NoDup_app; [ repeat constructor; auto | apply NoDup_app | ].
    + apply words_NoDup. congruence.
    + apply own_NoDup.
    + intros w H H'. apply in_own in H' as [H' _]. unfold v_words in H. in_words. exact H'.
    + intros w [<- | []] H. apply in_app_iff in H as [H | H].
      * unfold v_words in H. in_words.
      * now apply in_own in H.
  - rewrite !app_length. unfold v_words. rewrite map_length, seq_length.
    change (word X) with aword in *. cbn [length]. lia.
Qed.

Definition absorbed (j i : nat) (s : state X) : Prop :=
  forall w, In w (row_accs i) -> In (Absorb i j) (content s w).

Lemma absorbed_keeps j i (s s' : state X) : keeps keep_accs s s' -> absorbed j i s -> absorbed j i s'.
Proof. intros [K _] H w Hw. apply K; [ now apply row_accs_kept in Hw | auto ]. Qed.

Lemma all_scored_keeps kept (s s' : state X) : keeps kept s s' -> all_scored s -> all_scored s'.
Proof. intros [_ K] H i j Hi Hj. apply K. auto. Qed.

Lemma absorb_pair_phase j i (s : state X) : j < nk -> In i rs -> all_scored s ->
  Permutation (fast s) (vo j) ->
  phase keep_accs M s (absorb_pair j i) (vo j) /\ absorbed j i (run s (absorb_pair j i)).
Proof.
  intros Hj Hi HS P. destruct (out_frame i j) as [N HL].
  set (W := [Ws i j] : list (word X)) in *.
  destruct (phase_reload (X := X) keep_accs M (Ws i j) s (vo j)) as (P1 & R1); trivial.
  set (s1 := run s [@Load X (Ws i j)]) in *.
  destruct (phase_do (X := X) keep_accs M (Absorb i j) s1 (W ++ vo j)) as (P2 & R2); trivial.
  { apply P1. }
  { intros w Hw.
    change (In w (v_words dv j ++ a_words dv i ++ W ++ stats true i)) in Hw.
    unfold vo, own. rewrite !in_app_iff, in_flat_map in *.
    destruct Hw as [Hw | [Hw | [Hw | Hw]]]; auto; right; right; exists i; (split; [ exact Hi | ]);
      apply in_or_app; auto. }
  { intros _. apply R1. apply HS; [ now apply rs_rows | exact Hj ]. }
  set (s2 := run s1 [@Do X (Absorb i j)]) in *.
  assert (P3 : phase keep_accs M s2 (map (@Drop X) W) (vo j)).
  { apply (phase_drop (X := X)); trivial; [ apply P2 | intros w [<- | []] H; exact H ]. }
  unfold absorb_pair. split.
  - apply (phase_app (X := X)) with (W ++ vo j); [ exact P1 | ].
    now apply (phase_app (X := X)) with (W ++ vo j).
  - rewrite !run_app. fold s1 s2. apply absorbed_keeps with s2; [ apply P3 | ].
    intros w Hw. now apply R2.
Qed.

Definition all_absorbed (j : nat) (s : state X) : Prop := forall i, In i rs -> absorbed j i s.

Lemma all_absorbed_keeps j (s s' : state X) :
  keeps keep_accs s s' -> all_absorbed j s -> all_absorbed j s'.
Proof. intros K H i Hi. apply absorbed_keeps with s; auto. Qed.

Lemma absorb_key_phase j (s : state X) : j < nk -> all_scored s -> Permutation (fast s) own ->
  phase keep_accs M s (absorb_key rs j) own /\ all_absorbed j (run s (absorb_key rs j)).
Proof.
  intros Hj HS P. destruct (out_frame 0 j) as [N HL].
  apply NoDup_app_inv in N as [_ N]. rewrite app_length in HL.
  assert (HF : length (vo j) <= M) by (change (word X) with aword in *; lia).
  assert (P1 : phase keep_accs M s (map (@Load X) (v_words dv j)) (vo j))
    by now apply (phase_load (X := X)).
  set (s1 := run s (map (@Load X) (v_words dv j))) in *.
  destruct (phase_loop (X := X) keep_accs M (absorb_pair j) (absorbed j) all_scored (vo j) rs)
    with (s := s1) as (P2 & R2); trivial.
  { intros a b. apply all_scored_keeps. }
  { intros i a b. apply absorbed_keeps. }
  { intros i a Hi Ha HSa. now apply absorb_pair_phase. }
  { apply P1. }
  { apply (all_scored_keeps keep_accs s); [ apply P1 | exact HS ]. }
  set (s2 := run s1 (flat_map (absorb_pair j) rs)) in *.
  assert (P3 : phase keep_accs M s2 (map (@Drop X) (v_words dv j)) own).
  { apply (phase_drop (X := X)); trivial; [ apply P2 | ].
    intros w Hw. unfold v_words in Hw. apply in_words in Hw as (c & _ & <-). exact (fun H => H). }
  unfold absorb_key. split.
  - apply (phase_app (X := X)) with (vo j); [ exact P1 | ].
    now apply (phase_app (X := X)) with (vo j).
  - rewrite !run_app. fold s1 s2. apply all_absorbed_keeps with s2; [ apply P3 | exact R2 ].
Qed.

Definition row_done (i : nat) (s : state X) : Prop :=
  (forall c, c < dv -> (forall j, j < nk -> In (Absorb i j) (saved s (Wa i c))) /\
                       In (Finish i) (saved s (Wa i c))) /\
  In (Finish i) (saved s (Wl i)).

Lemma out_block_valid (s : state X) : fast s = [] -> all_scored s ->
  let s' := run s (out_block rs) in
  valid M s (out_block rs) /\ fast s' = [] /\ all_scored s' /\
  (forall i, In i rs -> row_done i s') /\
  (forall w t, ~ In (row_of w) rs -> In t (saved s w) -> In t (saved s' w)).
Proof.
  intros P HS. pose proof own_room as HL. pose proof own_NoDup as N.
  assert (HF : length own <= M) by lia.
  assert (P1 : phase nothing M s (map (@New X) own) own).
  { rewrite <- (app_nil_r own) at 2. apply (phase_new (X := X)); rewrite ?app_nil_r; trivial.
    - rewrite P. constructor.
    - intros w Hw. split; [ | exact (fun H => H) ]. apply in_own in Hw as [Hw _].
      destruct w; cbn in *; tauto. }
  set (s1 := run s (map (@New X) own)) in *.
  assert (HS1 : all_scored s1) by (apply (all_scored_keeps nothing s); [ apply P1 | exact HS ]).
  destruct (phase_loop (X := X) keep_accs M (absorb_key rs) all_absorbed all_scored own (seq 0 nk))
    with (s := s1) as (P2 & R2); trivial.
  { intros a b. apply all_scored_keeps. }
  { intros j a b. apply all_absorbed_keeps. }
  { intros j a Hj Ha HSa. apply in_seq in Hj. apply absorb_key_phase; trivial. lia. }
  { apply P1. }
  set (s2 := run s1 (flat_map (absorb_key rs) (seq 0 nk))) in *.
  set (Inv := fun a : state X => forall j, In j (seq 0 nk) -> all_absorbed j a).
  set (normal := fun i (a : state X) => forall w, In w (row_accs i) -> In (Finish i) (content a w)).
  destruct (phase_loop (X := X) keep_accs M (fun i => [@Do X (Finish i)]) normal Inv own rs)
    with (s := s2) as (P3 & R3); trivial.
  { intros a b K H j Hj. apply all_absorbed_keeps with a; auto. }
  { intros i a b [K _] H w Hw. apply K; [ now apply row_accs_kept in Hw | now apply H ]. }
  { intros i a Hi Ha HI. apply (phase_do (X := X)); trivial.
    - intros w Hw. unfold own. apply in_flat_map. exists i. split; [ exact Hi | exact Hw ].
    - intros j w Hj Hw. apply in_prod_iff in Hj as [_ Hj]. now apply (HI j Hj i Hi). }
  { apply P2. }
  set (s3 := run s2 (flat_map (fun i => [@Do X (Finish i)]) rs)) in *.
  assert (R3' : Inv s3).
  { intros j Hj. apply all_absorbed_keeps with s2; [ apply P3 | auto ]. }
  assert (E3 : Permutation (fast s3) own) by apply P3.
  assert (Ho : forall w i, In w (row_outs i) -> In w (row_accs i)) by (intros w i; apply out_accs).
  destruct (store_all (X := X) M (flat_map row_outs rs) s3) as (V4 & F4 & C4 & S4 & S4').
  { intros w Hw. apply in_flat_map in Hw as (i & Hi & Hw).
    apply (Permutation_in _ (Permutation_sym E3)). apply in_flat_map. exists i. auto. }
  { now rewrite (Permutation_length E3). }
  set (s4 := run s3 (map (@Store X) (flat_map row_outs rs))) in *.
  assert (P5 : phase nothing M s4 (map (@Drop X) own) []).
  { apply (phase_drop (X := X)); rewrite ?app_nil_r; trivial;
      [ now rewrite F4 | intros w _ H; exact H ]. }
  assert (Sq : forall w, ~ In (row_of w) rs \/ ~ keep_accs w -> ~ In w (flat_map row_outs rs)).
  { intros w Hw H. apply in_flat_map in H as (i & Hi & H). apply Ho, row_accs_kept in H as [H <-].
    tauto. }
  cbn zeta. unfold out_block. fold own. rewrite !run_app, !valid_app. fold s1 s2 s3 s4.
  destruct P1 as (V1 & _ & _ & K1), P2 as (V2 & _ & _ & K2), P3 as (V3 & _ & _ & K3),
    P5 as (V5 & E5 & _ & K5).
  split; [ tauto | split; [ | split; [ | split ] ] ].
  - now apply Permutation_nil, Permutation_sym.
  - intros i j Hi Hj. apply K5. rewrite S4' by (apply Sq; right; exact (fun H => H)).
    apply K3, K2. now apply HS1.
  - intros i Hi. split.
    + intros c Hc. assert (Hw : In (Wa i c) (row_outs i)).
      { apply in_or_app. left. apply in_words. eauto. }
      assert (Hf : In (Wa i c) (flat_map row_outs rs)) by (apply in_flat_map; eauto).
      split.
      * intros j Hj. apply K5. rewrite S4 by exact Hf. apply (R3' j); [ apply in_seq; lia | exact Hi | ].
        now apply Ho.
      * apply K5. rewrite S4 by exact Hf. apply R3; [ exact Hi | now apply Ho ].
    + assert (Hw : In (Wl i) (row_outs i)) by (apply in_or_app; right; now left).
      apply K5. rewrite S4 by (apply in_flat_map; eauto). apply R3; [ exact Hi | now apply Ho ].
  - intros w t Hw Ht. apply K5. rewrite S4' by (apply Sq; now left). now apply K3, K2, K1.
Qed.
End OutBlock.

Lemma out_blocks_valid Bs : forall s : state X, NoDup (concat Bs) ->
  (forall rs, In rs Bs -> length rs <= br /\ forall i, In i rs -> i < nq) ->
  fast s = [] -> all_scored s ->
  let s' := run s (flat_map out_block Bs) in
  valid M s (flat_map out_block Bs) /\ fast s' = [] /\
  (forall i, In i (concat Bs) -> row_done i s') /\
  (forall w t, ~ In (row_of w) (concat Bs) -> In t (saved s w) -> In t (saved s' w)).
Proof.
  induction Bs as [| rs Bs IH]; intros s N L P HS; cbn in *; [ tauto | ].
  rewrite run_app, valid_app. destruct (NoDup_app_inv _ _ N) as [N1 N2].
  destruct (L rs (or_introl eq_refl)) as [Lr Rr].
  destruct (out_block_valid rs N1 Lr Rr s P HS) as (V1 & F1 & H1 & D1 & S1).
  destruct (IH (run s (out_block rs)) N2) as (V2 & F2 & D2 & S2); auto.
  split; [ tauto | split; [ exact F2 | split ] ].
  - intros i Hi. destruct (in_dec Nat.eq_dec i (concat Bs)) as [Hi' | Hi']; [ auto | ].
    apply in_app_iff in Hi as [Hi | Hi]; [ | tauto ]. destruct (D1 i Hi) as [Da Dl].
    split; [ intros c Hc; destruct (Da c Hc); split; [ intros j Hj | ] | ]; apply S2; auto.
  - intros w t Hw Ht. rewrite in_app_iff in Hw. apply S2; [ tauto | apply S1; tauto ].
Qed.

Theorem two_passes_correct :
  valid M (init X) two_passes /\
  complete false true true d dv vis (run (init X) two_passes) /\
  finished false true true d dv vis nq (run (init X) two_passes).
Proof.
  destruct first_pass as (V1 & F1 & S1).
  destruct (out_blocks_valid (tiles nq br) (run (init X) (flat_map score_block (tiles nq br))))
    as (V2 & _ & D & _); trivial.
  - rewrite concat_tiles by exact br_positive. apply seq_NoDup.
  - intros rs H. split; [ now apply tile_facts | ]. intros i Hi.
    assert (In i (concat (tiles nq br))) by (apply in_concat; eauto).
    rewrite concat_tiles in * by exact br_positive. apply in_seq in H0. lia.
  - rewrite concat_tiles in D by exact br_positive. unfold two_passes.
    rewrite valid_app, run_app. split; [ auto | split ].
    + intros i j c Hp Hc. apply in_prod_iff in Hp as [Hi Hj]. apply in_seq in Hj.
      destruct (D i Hi) as [H _]. apply H; [ exact Hc | lia ].
    + intros i Hi. destruct (D i) as [H Hl]; [ apply in_seq; lia | ].
      split; [ intros c Hc; now apply H | intros _; exact Hl ].
Qed.
End Witness.

Theorem unfused_attained d dv nq nk br M :
  0 < br -> br * d + d + 1 <= M -> br * (dv + 2) + dv + 1 <= M ->
  exists es : list (event (attention false true true d dv (all_pairs nq nk))),
    valid M (init _) es /\
    complete false true true d dv (all_pairs nq nk) (run (init _) es) /\
    finished false true true d dv (all_pairs nq nk) nq (run (init _) es) /\
    traffic es = nq * (d + dv) + nq + cdiv nq br * (nk * (d + dv)) + 2 * nq * nk.
Proof.
  intros Hb H1 H2. exists (two_passes d dv nq nk br).
  destruct (two_passes_correct d dv nq nk br M Hb H1 H2) as (V & C & F).
  split; [ exact V | split; [ exact C | split; [ exact F | now apply two_passes_traffic ] ] ].
Qed.

(* An instance: with d = 64 and 1024 words, at any length from 51 on, an unfused
   execution moves less than any fused one can (fused_bound_constant_4). *)
Corollary unfused_below_fused N : 51 <= N ->
  exists es : list (event (attention false true true 64 64 (all_pairs N N))),
    valid 1024 (init _) es /\
    complete false true true 64 64 (all_pairs N N) (run (init _) es) /\
    (1024 - 1) * traffic es < 4 * N * N * 64 * 64.
Proof.
  intros HN.
  destruct (unfused_attained 64 64 N N 14 1024) as (es & V & C & _ & T); [ lia | lia | lia | ].
  exists es. split; [ exact V | split; [ exact C | ] ]. rewrite T.
  pose proof (cdiv_upper N 14 ltac:(lia)) as U. set (t := cdiv N 14) in *. clearbody t. clear T.
  assert (U' : t * 14 * N <= (N + 13) * N) by (apply Nat.mul_le_mono_r; lia).
  assert (51 * N <= N * N) by (apply Nat.mul_le_mono_r; exact HN).
  lia.
Qed.
